"""Every URL of the service."""

from django.contrib import admin
from django.urls import include, path, re_path

from catalog.api.errors import nothing_here

handler403 = "dashboard.operation.refusing.forbidden"
handler404 = "dashboard.operation.refusing.not_found"
handler500 = "dashboard.operation.failing.server_error"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/v1/", include("dashboard.rest")),
    re_path(r"^api/", nothing_here),
    path("", include("dashboard.pages.urls")),
]
