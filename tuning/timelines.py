"""Timelines of runs that sessions report of their plans: the last of each is kept, and shown to the plan's
organisation alone."""

from __future__ import annotations

from catalog import models
from opatlas import packing
from opatlas.streams.timeline import Timeline

MOST_BYTES = 4 << 20
"""Of a timeline's JSON, unpacked: a body is of 1 MiB at most, and JSON may write it longer."""


def keep_timeline(plan: models.StoredPlan, timeline: Timeline) -> models.PlanTimeline:
    """The last report counts."""
    row, _ = models.PlanTimeline.objects.update_or_create(
        plan=plan, defaults={"packed": packing.packed(timeline.to_json())}
    )
    return row


def kept_timeline(row: models.PlanTimeline) -> Timeline:
    """What :func:`keep_timeline` kept."""
    return Timeline.from_json(packing.unpacked(bytes(row.packed), MOST_BYTES))
