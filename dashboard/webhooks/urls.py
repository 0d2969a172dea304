"""One line per page."""

from django.urls import URLPattern, URLResolver, path

from dashboard.webhooks.pages import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.webhooks, name="webhooks"),
    path("endpoints/create/", views.create, name="webhook-create"),
    path("endpoints/<int:pk>/", views.endpoint, name="webhook-endpoint"),
    path("endpoints/<int:pk>/<slug:verb>/", views.act, name="webhook-act"),
    path("deliveries/<int:pk>/", views.delivery, name="webhook-delivery"),
    path("deliveries/<int:pk>/replay/", views.replay, name="webhook-replay"),
]
