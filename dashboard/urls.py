"""Every URL of the service."""

from django.contrib import admin
from django.urls import include, path, re_path

from catalog.api.errors import nothing_here

handler500 = "dashboard.operation.failing.server_error"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/v1/", include("catalog.api.urls")),
    path("api/v1/", include("tuning.api.urls")),
    path("api/v1/", include("tuning.kernels.api.urls")),
    path("api/v1/", include("dashboard.webhooks.api.urls")),
    path("api/v1/", include("dashboard.billing.api.urls")),
    path("api/v1/", include("dashboard.notifications.api.urls")),
    re_path(r"^api/", nothing_here),
    path("", include("dashboard.pages.urls")),
]
