"""The kernels' part of /api/v1/."""

from django.urls import URLPattern, URLResolver, path

from tuning.kernels.api import views

_KERNEL = "kernels/<row_id:number>"
_VERSION = "kernels/versions/<row_id:number>"

urlpatterns: list[URLPattern | URLResolver] = [
    path("kernels/", views.Kernels.as_view()),
    path(_KERNEL, views.KernelDetail.as_view()),
    path(f"{_KERNEL}/versions", views.Versions.as_view()),
    path(f"{_KERNEL}/history", views.History.as_view()),
    path(_VERSION, views.VersionDetail.as_view()),
    path(f"{_VERSION}/evidence", views.KernelEvidenceView.as_view()),
    path(f"{_VERSION}/approve", views.Approve.as_view()),
    path(f"{_VERSION}/reject", views.Reject.as_view()),
    path(f"{_VERSION}/revoke", views.Revoke.as_view()),
]
