"""Tuning's part of /api/v1/."""

from django.urls import URLPattern, URLResolver, path

from tuning.api import environments, models_api, operation, overview, statistics, views, work

_ONE = "explorations/<int:pk>"

urlpatterns: list[URLPattern | URLResolver] = [
    path("explorations/", views.Explorations.as_view()),
    path(_ONE, views.ExplorationDetail.as_view()),
    path(f"{_ONE}/pause", operation.PauseExploration.as_view()),
    path(f"{_ONE}/resume", operation.ResumeExploration.as_view()),
    path(f"{_ONE}/retry", operation.RetryExploration.as_view()),
    path(f"{_ONE}/discard", operation.DiscardExploration.as_view()),
    path(f"{_ONE}/prioritise", operation.PrioritiseExploration.as_view()),
    path("explorations/bulk", operation.ExplorationsAtOnce.as_view()),
    path(f"{_ONE}/log", operation.ExplorationLog.as_view()),
    path(f"{_ONE}/eta", work.ExplorationEta.as_view()),
    path("trials/", views.TrialListView.as_view()),
    path("workers/", views.Workers.as_view()),
    path("misses/", views.Misses.as_view()),
    path("misses/bulk", operation.MissesAtOnce.as_view()),
    path("misses/<int:pk>/explore", operation.ExploreMiss.as_view()),
    path("misses/<int:pk>/discard", operation.DiscardMiss.as_view()),
    path("statistics/overview", overview.OverviewStatistics.as_view()),
    path("statistics/queues", work.QueueStatistics.as_view()),
    path("statistics/workers", work.WorkerStatistics.as_view()),
    path("statistics/methods", statistics.MethodStatistics.as_view()),
    path("statistics/heatmap", statistics.Heatmap.as_view()),
    path("statistics/operators/<str:key>", statistics.OperatorStatistics.as_view()),
    path("statistics/environments/compare", statistics.CompareEnvironments.as_view()),
    path("models/", models_api.Models.as_view()),
    path("models/<int:pk>", models_api.ModelDetail.as_view()),
    path("tuning/accuracy", views.TuningAccuracyView.as_view()),
    path("environments/", environments.Environments.as_view()),
    path("environments/declare", environments.DeclareEnvironment.as_view()),
    path("revalidations/", environments.Revalidations.as_view()),
    path("revalidations/<int:pk>", environments.RevalidationDetail.as_view()),
    path("queues/", views.QueueState.as_view()),
    path("queues/pause", operation.PauseQueue.as_view()),
    path("queues/resume", operation.ResumeQueue.as_view()),
]
