"""Notifications' pages."""

from django.urls import URLPattern, URLResolver, path

from dashboard.notifications.pages import inbox, push, subscriptions, unsubscribe

_ONE = "notifications/subscriptions/<int:pk>"

urlpatterns: list[URLPattern | URLResolver] = [
    path("notifications/", inbox.inbox, name="notifications"),
    path("notifications/unread/", inbox.badge, name="notifications-unread"),
    path("notifications/read/", inbox.mark_read, name="notifications-read"),
    path("notifications/<int:pk>/", inbox.open_one, name="notification"),
    path("notifications/subscriptions/", subscriptions.subscriptions, name="subscriptions"),
    path("notifications/subscriptions/new/", subscriptions.subscribe, name="subscribe"),
    path(f"{_ONE}/", subscriptions.subscription, name="subscription"),
    path(f"{_ONE}/end/", subscriptions.end, name="subscription-end"),
    path(f"{_ONE}/test/", subscriptions.test, name="subscription-test"),
    path("notifications/address/", subscriptions.address, name="notification-address"),
    path("notifications/push/", push.register, name="push-register"),
    path("notifications/push/key/", push.public_key, name="push-key"),
    path("notifications/push/<int:pk>/forget/", push.forget, name="push-forget"),
    path("notifications/unsubscribe/<str:token>/", unsubscribe.unsubscribe, name="notification-unsubscribe"),
    path("sw.js", push.service_worker, name="service-worker"),
]
