"""The target that somebody names: one function for lookups, models, plans, lists and commands."""

from __future__ import annotations

import re

from catalog.errors import Unknown
from catalog.models import Target
from catalog.selectors.rows import row_by

TARGET_KEY = re.compile(r"t1:[0-9a-f]{64}")
HERE = "here"
"""Names the target whose worker was seen last."""


def target_named(name: str) -> Target:
    """By its ``t1:`` key, or ``here``; raises :class:`catalog.errors.Unknown`."""
    if name == HERE:
        row = target_here()
    else:
        row = row_by(Target, "key", name) if TARGET_KEY.fullmatch(name) else None
    if row is not None:
        return row
    if name == HERE:
        raise Unknown("No worker was ever here: start one, or name the target by its JSON.", where="target")
    raise Unknown(
        "This target is not known: name it 'here' for this service's own, or by a key that "
        "GET /api/v1/targets/ lists; a lookup may send its JSON once.",
        where="target",
    )


def target_here() -> Target | None:
    """That of the worker that was seen last, whether or not it lives still; None: there never was one."""
    return Target.objects.exclude(served_until=None).order_by("-served_until", "pk").first()
