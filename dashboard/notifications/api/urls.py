"""Notifications' part of /api/v1/."""

from django.urls import URLPattern, URLResolver, path

from dashboard.notifications.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("notifications/", views.Notifications.as_view(), name="api-notifications"),
    path("notifications/read", views.ReadAll.as_view(), name="api-notifications-read"),
    path("notifications/<row_id:pk>/read", views.ReadNotification.as_view(), name="api-notification-read"),
    path("subscriptions/", views.Subscriptions.as_view(), name="api-subscriptions"),
    path("subscriptions/<row_id:pk>", views.SubscriptionDetail.as_view(), name="api-subscription"),
]
