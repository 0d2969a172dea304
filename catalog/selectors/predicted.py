"""What is known of what comes next: an operator's successors, and the network that a caller may run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import Max, Sum

from catalog import models
from catalog.errors import Unknown
from catalog.viewing import Viewer


class RelatedOperator(NamedTuple):
    """An operator that jobs asked for soon after another one; in how many jobs, and when last."""

    key: str
    summary: str
    op_type: str
    jobs: int
    last_at: object


def related_to(operator: models.Operator, viewer: Viewer, most: int = 12) -> list[RelatedOperator]:
    """What jobs asked for after it, as far as the viewer may see those jobs; the likeliest first."""
    seen = models.Succession.objects.filter(viewer.owned(), before=operator)
    named = [f"after__{name}" for name in ("key", "summary", "op_type")]
    rows = seen.values(*named).annotate(among=Sum("jobs"), last=Max("last_at"), strength=Sum("weight"))
    likely = rows.order_by("-strength", "after__key").values_list(*named, "among", "last")
    return [RelatedOperator(*row) for row in likely[:most]]


def network_of(scopes: Sequence[str]) -> models.PredictorNetwork:
    """The newest network of the first scope that has one. Raises :class:`catalog.errors.Unknown`."""
    for scope in scopes:
        found = models.PredictorNetwork.objects.filter(scope=scope).order_by("-version").first()
        if found is not None:
            return found
    raise Unknown("No network was trained for this organisation yet (manage.py train_predictor).")


def network_with(sha256: str, scopes: Sequence[str]) -> models.PredictorNetwork:
    """The network with this file, of one of these scopes. Raises :class:`catalog.errors.Unknown`."""
    found = models.PredictorNetwork.objects.filter(scope__in=scopes, sha256=sha256).order_by("-pk").first()
    if found is None:
        raise Unknown("No network has this SHA-256: GET /api/v1/predictor names the newest.")
    return found
