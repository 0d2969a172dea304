"""Machine code beside an implementation's source: kept by workers in small steps, for people to read.

It is kept for each route's best, about 15 kB each, and deleted with its implementation.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from django.db.models import F, Q, QuerySet

from catalog.models import Best, Implementation, MachineCode

WINDOW = 500
"""Bests that one statement reads."""

_NO_CODE = {
    "recipe": "A library call has no code of its own: what is called, and how, is its recipe.",
    "jax": "XLA makes its machine code where it is loaded: the artifact holds none.",
}
_WITHHELD = "It is withheld until it is paid."
_NOT_READ = (
    "Not read yet: a worker reads the machine code of each route's best when nothing else waits for it."
)


@dataclass(frozen=True)
class KeptCode:
    """Machine code for display."""

    text: Annotated[
        str, "Functions, the kernel's entry first, then by their loops; empty where there is none."
    ]
    lines: Annotated[int, "In all: the text may hold the first of them only."]
    lines_kept: Annotated[int, "Of the text."]
    tool: Annotated[str, "What disassembled it."]
    why_not: Annotated[str, "Why there is none, in a sentence."]


def code_of(row: Implementation) -> KeptCode:
    """The kept code of an implementation (with its artifact), or why there is none."""
    if not row.artifact.sha256:
        return KeptCode("", 0, 0, "", _WITHHELD)
    if why_not := why_none(row.artifact.kind, row.artifact.manifest.get("needs") or ()):
        return KeptCode("", 0, 0, "", why_not)
    kept: MachineCode | None = getattr(row, "machine_code", None)
    if kept is None or kept.artifact_sha256 != row.artifact.sha256:
        return KeptCode("", 0, 0, "", _NOT_READ)
    text = zlib.decompress(kept.packed).decode() if kept.packed else ""
    why_not = f"A worker tried: {kept.why_not}." if kept.why_not else ""
    return KeptCode(text, kept.lines, len(text.splitlines()), kept.tool, why_not)


def why_none(kind: str, needs: str | tuple[str, ...]) -> str:
    """Why an artifact of this kind holds no machine code; empty if it does."""
    return _NO_CODE["recipe"] if kind == "recipe" else _NO_CODE["jax"] if "jax" in needs else ""


def keep_code(row: Implementation, text: str, lines: int, tool: str, why_not: str) -> None:
    """Keep the code of its present artifact. Code that was kept of the same artifact is not replaced by
    nothing."""
    said = {"lines": lines, "tool": tool[:40], "why_not": why_not[:300]}
    packed = zlib.compress(text.encode()) if text else b""
    before = MachineCode.objects.filter(implementation=row, artifact_sha256=row.artifact.sha256, why_not="")
    if why_not and before.exists():
        return
    MachineCode.objects.update_or_create(
        implementation=row, defaults={"artifact_sha256": row.artifact.sha256, "packed": packed, **said}
    )


def unread_since(target_id: int, moment: datetime) -> list[int]:
    """Implementations that became a route's best since then and were not tried yet: the newest first."""
    rows = _holding(Best.objects.filter(target=target_id, published_at__gt=moment))
    rows = rows.exclude(_tried()).order_by("-published_at")[:WINDOW]
    return list(rows.values_list("implementation_id", flat=True))


def unread_before(target_id: int, number: int | None) -> tuple[list[int], int | None]:
    """Of the next bests below this number (None: of all), the implementations without code; and the number
    where the next ones begin (None: no more)."""
    rows = Best.objects.order_by("-pk")
    if number is not None:
        rows = rows.filter(pk__lt=number)
    window = list(rows.values_list("pk", flat=True)[:WINDOW])
    if not window:
        return [], None
    those = _holding(Best.objects.filter(pk__in=window, target=target_id))
    those = those.exclude(_tried() & Q(implementation__machine_code__why_not=""))
    return list(those.order_by("-pk").values_list("implementation_id", flat=True)), window[-1]


def _holding(rows: QuerySet[Best]) -> QuerySet[Best]:
    """Those whose artifacts hold machine code (``why_none``, as the database asks it)."""
    whole = rows.filter(implementation__artifact__damaged_at=None)
    return whole.exclude(kind="recipe").exclude(needs__contains="jax")


def _tried() -> Q:
    """Of the artifact that the implementation has now: a best may still name the one before it."""
    return Q(implementation__machine_code__artifact_sha256=F("implementation__artifact__sha256"))


def to_read(number: int) -> Implementation | None:
    """The implementation with what its reader needs; None if it is gone, or was read."""
    found = Implementation.objects.select_related("artifact", "machine_code").defer("source", "schedule")
    row = found.filter(pk=number, artifact__damaged_at=None).first()
    if row is None or (code := getattr(row, "machine_code", None)) is None:
        return row
    return row if code.why_not or code.artifact_sha256 != row.artifact.sha256 else None
