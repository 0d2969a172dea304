"""Why a hit is trusted: read on request, beside the one table of lookups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from catalog.models import Best

_COLUMNS = {
    "max_error": "measurement__max_error",
    "tolerance": "measurement__tolerance",
    "tier": "measurement__tier",
    "environment": "implementation__environment__versions",
    "signer": "implementation__artifact__signer",
}


def evidence_of(implementations: Iterable[int]) -> Mapping[int, Mapping[str, Any]]:
    """By implementation that leads its route: how right it was found to be (``max_error``: of the worst
    element, as a share of what is allowed there; up to ``tolerance`` passes), in which sandbox ``tier`` and
    ``environment`` (versions), and whose key vouches for it (``signer``). One statement."""
    rows = Best.objects.filter(implementation__in=set(implementations))
    found = rows.values_list("implementation", *_COLUMNS.values())
    return {number: dict(zip(_COLUMNS, values, strict=True)) for number, *values in found}
