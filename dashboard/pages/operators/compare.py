"""Two environments of a target side by side: what another version changed, regressions first."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from catalog.models import Target
from dashboard.web.asked import say_unknown, takes
from dashboard.web.charts import methods as method_charts
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Column, Table, exported, page
from tuning.statistics import environments
from tuning.statistics.comparing import share
from tuning.statistics.environments import Compared, Known, Pair

_SHOWN = 200


@require_safe
def compare_page(request: ViewerRequest) -> HttpResponse:
    targets = list(Target.objects.defer("description").order_by("capability", "pk"))
    takes(request, "target", "a", "b")
    target = next((one for one in targets if one.key == request.GET.get("target")), None)
    if target is None:
        say_unknown(request, "target")
    seen = request.viewer.shown()
    target = target or _first_with_two(targets, seen)
    known = environments.known(target, seen) if target else []
    a, b, wrong = _chosen(request, target, known)
    compared = None
    if target and a and b:
        compared = environments.compare_environments(target, a.environment, b.environment, seen)
    table = _table(compared)
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "targets": targets, "target": target, "known": known, "a": a, "b": b, "wrong": wrong,
        "compared": compared, "table": table,
        "counts": compared.counts if compared else {},
        "chart": method_charts.changes(compared.pairs) if compared and compared.pairs else None,
        "more": max(0, len(compared.pairs) - _SHOWN) if compared else 0,
    }  # fmt: skip
    return render(request, "operators/compare.html", context)


def _first_with_two(targets: Sequence[Target], seen: Q) -> Target | None:
    """Where there is something to compare, else any."""
    for target in targets[:20]:
        if environments.suggested(environments.known(target, seen)):
            return target
    return targets[0] if targets else None


def _chosen(
    request: ViewerRequest, target: Target | None, known: Sequence[Known]
) -> tuple[Known | None, Known | None, str]:
    """A, B, and one sentence about what was asked for and cannot be."""
    named = {one.environment.digest: one for one in known}
    asked = [request.GET.get(name, "") for name in ("a", "b")]
    if not any(asked):
        both = environments.suggested(known)
        return (*both, "") if both else (None, None, "")
    a, b = (named.get(digest) for digest in asked)
    if a is None or b is None:
        return a, b, "Choose two environments that have evidence on this target."
    if a is b:
        return a, b, "A and B are the same environment: nothing can have changed."
    return a, b, ""


def _confidence(pair: Pair) -> str:
    return share(pair.change.confidence)


_COLUMNS = (
    Column("verdict", "Verdict", "badge"),
    Column("operator", "Operator", value="summary", link=page("operator", "operator")),
    Column("route", "Route", "method"),
    Column("candidate", "Candidate", value="label"),
    Column("setting", "Setting"),
    Column("ratio_a", "In A", "ratio", figure="operator_speedup"),
    Column("ratio_b", "In B", "ratio", figure="operator_speedup"),
    Column("change", "Change", "ratio", "change.factor", figure="environment_change"),
    Column("change_low", "from", "ratio", "change.low"),
    Column("change_high", "to", "ratio", "change.high"),
    Column("confidence", "Confidence", value=_confidence, figure="comparison_confidence"),
    Column("samples", "Samples", value=lambda pair: "{1} and {0}".format(*pair.change.samples)),
)
_NOTE = Column("note", "Note", value=lambda pair: "another default" if pair.default_changed else "")


def _table(compared: Compared | None) -> Table:
    columns = (*_COLUMNS, _NOTE) if compared and compared.default_changed else _COLUMNS
    rows = compared.pairs if compared else ()
    empty = "No candidate was measured in both environments."
    return Table("changes", "Changes from A to B", columns, rows[:_SHOWN], every=rows, empty=empty)
