"""Every URL of the service."""

from django.contrib import admin
from django.urls import include, path, re_path

from catalog.api.errors import nothing_here

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/v1/", include("catalog.api.urls")),
    path("api/v1/", include("tuning.api.urls")),
    path("api/v1/", include("tuning.kernels.api.urls")),
    re_path(r"^api/", nothing_here),
    path("", include("dashboard.pages.urls")),
]
