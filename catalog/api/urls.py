"""The query API's URLs. Keys, ids and digests are matched here: what does not fit is a 404."""

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.urls import URLPattern, URLResolver, path, register_converter
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from catalog.api.views import accounts, artifacts, jobs, lookups, operators, statistics


class OperatorKeyConverter:
    regex = "o1:[0-9a-f]{64}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


class Sha256Converter(OperatorKeyConverter):
    regex = "[0-9a-f]{64}"


class PlainNameConverter(OperatorKeyConverter):
    regex = "[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}"


class RowIdConverter:
    """A row's number; nineteen digits hold every number that a row can have."""

    regex = "[0-9]{1,19}"

    def to_python(self, value: str) -> int:
        return int(value)

    def to_url(self, value: int) -> str:
        return str(value)


register_converter(OperatorKeyConverter, "operator_key")
register_converter(Sha256Converter, "sha256")
register_converter(PlainNameConverter, "plain_name")
register_converter(RowIdConverter, "row_id")

_open: dict[str, Any] = {"authentication_classes": [], "permission_classes": []}

urlpatterns: list[URLPattern | URLResolver] = [
    path("lookup", lookups.LookupView.as_view(), name="lookup"),
    path("operators/", operators.OperatorListView.as_view(), name="operator-list"),
    path("operators/<operator_key:key>", operators.OperatorView.as_view(), name="operator"),
    path("operators/<operator_key:key>/best", lookups.OperatorBestView.as_view(), name="operator-best"),
    path(
        "operators/<operator_key:key>/implementations",
        operators.OperatorImplementationsView.as_view(),
        name="operator-implementations",
    ),
    path("implementations/<row_id:number>", operators.ImplementationView.as_view(), name="implementation"),
    path(
        "implementations/<row_id:number>/revoke",
        operators.RevokeImplementationView.as_view(),
        name="revoke-implementation",
    ),
    path("jobs/", jobs.JobListView.as_view(), name="job-list"),
    path("statistics/traffic", statistics.TrafficStatisticsView.as_view(), name="traffic-statistics"),
    path("statistics/operators", statistics.OperatorsStatisticsView.as_view(), name="operators-statistics"),
    path("statistics/definitions", statistics.DefinitionsView.as_view(), name="definitions"),
    path("statistics/jobs", jobs.JobStatisticsView.as_view(), name="job-statistics"),
    path("statistics/jobs/<row_id:number>", jobs.JobDetailView.as_view(), name="job-detail"),
    path("keys/", accounts.Keys.as_view(), name="key-list"),
    path("keys/<row_id:number>/revoke", accounts.RevokeKey.as_view(), name="revoke-key"),
    path("members/", accounts.Members.as_view(), name="member-list"),
    path("members/<row_id:number>", accounts.Member.as_view(), name="member"),
    path("audit/", accounts.AuditLogView.as_view(), name="audit-list"),
    path("signers/", artifacts.SignerListView.as_view(), name="signer-list"),
    path("artifacts/<sha256:sha256>", artifacts.ArtifactView.as_view(), name="artifact"),
    path(
        "artifacts/<sha256:sha256>/files/<plain_name:name>",
        artifacts.ArtifactFileView.as_view(),
        name="artifact-file",
    ),
    path("targets/", operators.TargetListView.as_view(), name="target-list"),
    path("settings/", operators.SettingListView.as_view(), name="setting-list"),
    path("schema/", login_not_required(SpectacularAPIView.as_view(**_open)), name="schema"),
    path(
        "docs/",
        login_not_required(SpectacularSwaggerSplitView.as_view(url_name="schema", **_open)),
        name="docs",
    ),
]
