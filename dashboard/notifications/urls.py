"""Notifications' pages."""

from django.urls import URLPattern, URLResolver, path

from dashboard.notifications.alerts import pages as alerts
from dashboard.notifications.channels.registry import CHANNELS
from dashboard.notifications.pages import inbox, subscriptions

_ONE = "notifications/subscriptions/<int:pk>"

urlpatterns: list[URLPattern | URLResolver] = [
    path("alerts/", alerts.alerts, name="alerts"),
    path("alerts/<int:pk>/", alerts.alert, name="alert"),
    path("alerts/<int:pk>/<slug:verb>/", alerts.act, name="alert-act"),
    path("notifications/", inbox.inbox, name="notifications"),
    path("notifications/unread/", inbox.badge, name="notifications-unread"),
    path("notifications/read/", inbox.mark_read, name="notifications-read"),
    path("notifications/<int:pk>/", inbox.open_one, name="notification"),
    path("notifications/subscriptions/", subscriptions.subscriptions, name="subscriptions"),
    path("notifications/subscriptions/new/", subscriptions.subscribe, name="subscribe"),
    path(f"{_ONE}/", subscriptions.subscription, name="subscription"),
    path(f"{_ONE}/end/", subscriptions.end, name="subscription-end"),
    path(f"{_ONE}/test/", subscriptions.test, name="subscription-test"),
    *(one for channel in CHANNELS.values() for one in channel.urls),
]
