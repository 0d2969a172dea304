"""Every resource of /api/v1/: a new one is a file (shapes, views, ``urlpatterns``) and a line here.

The lookup comes first: addresses are tried in this order.
"""

from importlib import import_module
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

RESOURCES = (
    "catalog.api.lookup",
    "catalog.api.reports",
    "catalog.api.operators",
    "catalog.api.implementations",
    "catalog.api.artifacts",
    "catalog.api.predictor",
    "catalog.api.targets",
    "catalog.api.jobs",
    "catalog.api.traffic",
    "catalog.api.keys",
    "catalog.api.members",
    "catalog.api.audit",
    "tuning.api.explaining",
    "tuning.api.failures",
    "tuning.api.failure_groups",
    "tuning.api.explorations",
    "tuning.api.trials",
    "tuning.api.misses",
    "tuning.api.queues",
    "tuning.api.workers",
    "tuning.api.methods",
    "tuning.api.operators",
    "tuning.api.environments",
    "tuning.api.uploads",
    "tuning.api.models",
    "tuning.api.plans",
    "tuning.api.overview",
    "tuning.kernels.api",
    "dashboard.webhooks.api",
    "dashboard.billing.api.account",
    "dashboard.billing.api.rules",
    "dashboard.billing.api.spending",
    "dashboard.billing.api.payments",
    "dashboard.notifications.api",
    "dashboard.notifications.alerts.api",
    "dashboard.operation.growth.api",
)

_open: dict[str, Any] = {"authentication_classes": [], "permission_classes": []}
_docs = SpectacularSwaggerSplitView.as_view(url_name="schema", **_open)

urlpatterns = [
    # One list, in which an address is found sooner than in a list of lists.
    *(pattern for name in RESOURCES for pattern in import_module(name).urlpatterns),
    path("schema/", login_not_required(SpectacularAPIView.as_view(**_open)), name="schema"),
    path("docs/", login_not_required(_docs), name="docs"),
]
