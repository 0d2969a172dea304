"""One line per page."""

from django.urls import URLPattern, URLResolver, path

from dashboard.pages import (
    account,
    environments,
    explorations,
    health,
    kernels,
    models,
    operations,
    operator,
    operators,
    overview,
)

urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview.overview, name="overview"),
    path("overview/live/", overview.live, name="overview-live"),
    path("operators/", operators.operators, name="operators"),
    path("operators/<str:key>/", operator.operator, name="operator"),
    path("operators/<str:key>/code/<int:implementation_id>/", operator.code, name="operator-code"),
    path("operators/<str:key>/revoke/", operator.revoke, name="operator-revoke"),
    path("environments/", environments.environments_page, name="environments"),
    path("environments/declare/", environments.declare, name="environment-declare"),
    path("explorations/", explorations.explorations, name="explorations"),
    path("explorations/<int:pk>/", explorations.exploration, name="exploration"),
    path("explorations/<int:pk>/<slug:verb>/", operations.act, name="exploration-act"),
    path("queues/<slug:verb>/", operations.queue, name="queue-act"),
    path("models/", models.models, name="models"),
    path("models/sample/", models.sample, name="model-sample"),
    path("models/<int:pk>/", models.model, name="model"),
    path("kernels/", kernels.kernels, name="kernels"),
    path("kernels/submit/", kernels.submit, name="kernel-submit"),
    path("kernels/<int:pk>/", kernels.kernel, name="kernel"),
    path("kernels/<int:pk>/edit/", kernels.edit, name="kernel-edit"),
    path("kernels/<int:pk>/v<int:number>/", kernels.version, name="kernel-version"),
    path("kernels/<int:pk>/v<int:number>/standing/", kernels.standing, name="kernel-standing"),
    path("kernels/<int:pk>/v<int:number>/<slug:verb>/", kernels.decide, name="kernel-decide"),
    path("login/", account.Login.as_view(), name="login"),
    path("logout/", account.Logout.as_view(), name="logout"),
    path("password/", account.Password.as_view(), name="password"),
    path("healthz", health.liveness, name="healthz"),
]
