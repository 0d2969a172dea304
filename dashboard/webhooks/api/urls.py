"""Webhooks' part of /api/v1/."""

from django.urls import URLPattern, URLResolver, path

from dashboard.webhooks.api import views

_ONE = "webhooks/endpoints/<row_id:pk>"

urlpatterns: list[URLPattern | URLResolver] = [
    path("webhooks/endpoints/", views.Endpoints.as_view(), name="webhook-endpoint-list"),
    path(_ONE, views.EndpointDetail.as_view(), name="webhook-endpoint"),
    path(f"{_ONE}/rotate", views.RotateSecret.as_view(), name="webhook-rotate"),
    path(f"{_ONE}/test", views.TestEndpoint.as_view(), name="webhook-test"),
    path(f"{_ONE}/disable", views.DisableEndpoint.as_view(), name="webhook-disable"),
    path(f"{_ONE}/enable", views.EnableEndpoint.as_view(), name="webhook-enable"),
    path("webhooks/deliveries/", views.Deliveries.as_view(), name="webhook-delivery-list"),
    path("webhooks/deliveries/<row_id:pk>", views.DeliveryDetail.as_view(), name="webhook-delivery"),
    path(
        "webhooks/deliveries/<row_id:pk>/replay",
        views.ReplayDelivery.as_view(),
        name="webhook-delivery-replay",
    ),
    path("webhooks/replay", views.Replay.as_view(), name="webhook-replay"),
]
