"""Tuning's part of /api/v1/."""

from django.urls import URLPattern, URLResolver, path

from tuning.api import environments, models_api, views

_ONE = "explorations/<int:pk>"

urlpatterns: list[URLPattern | URLResolver] = [
    path("explorations/", views.Explorations.as_view()),
    path(_ONE, views.ExplorationDetail.as_view()),
    path(f"{_ONE}/pause", views.PauseExploration.as_view()),
    path(f"{_ONE}/resume", views.ResumeExploration.as_view()),
    path(f"{_ONE}/retry", views.RetryExploration.as_view()),
    path(f"{_ONE}/discard", views.DiscardExploration.as_view()),
    path(f"{_ONE}/prioritise", views.PrioritiseExploration.as_view()),
    path("trials/", views.Trials.as_view()),
    path("workers/", views.Workers.as_view()),
    path("misses/", views.Misses.as_view()),
    path("models/", models_api.Models.as_view()),
    path("models/<int:pk>", models_api.ModelDetail.as_view()),
    path("tuning/accuracy", views.TuningAccuracy.as_view()),
    path("environments/", environments.Environments.as_view()),
    path("environments/declare", environments.DeclareEnvironment.as_view()),
    path("revalidations/", environments.Revalidations.as_view()),
    path("revalidations/<int:pk>", environments.RevalidationDetail.as_view()),
    path("queues/", views.QueueState.as_view()),
    path("queues/pause", views.PauseQueue.as_view()),
    path("queues/resume", views.ResumeQueue.as_view()),
]
