"""A newcomer's first steps, ticked off as they happen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists
from django.utils import timezone

from catalog.models import ApiKey, Miss, Model, Organisation, TrafficSlot, Usage
from catalog.viewing import Viewer
from tuning.models import Worker
from tuning.queue.clock import alive

NEW_FOR = timedelta(days=7)
"""So long after their first lookup people are reminded of what they have not tried."""


@dataclass(frozen=True)
class FirstStep:
    title: str
    done: bool
    how: str  # what it takes, while it is not done


def steps(viewer: Viewer) -> list[FirstStep]:
    """Of the organisation that is looked at, or of all of them (one statement)."""
    owned = viewer.owned()
    # A model's operators are asked for too, by no key.
    asked = Miss.objects.filter(viewer.owned("api_key__organisation"), api_key__isnull=False)
    done = Organisation.objects.values_list(
        Exists(ApiKey.objects.filter(owned, revoked_at=None)),
        Exists(Usage.objects.filter(owned)),
        Exists(TrafficSlot.objects.filter(tenant=viewer.tenant)),
        Exists(asked),
        Exists(Model.objects.filter(owned)),
        Exists(Worker.objects.filter(alive())),
    )
    row = done.order_by("pk").first() or (False,) * 6
    has_key, has_hit, has_traffic, has_asked, has_model, has_worker = row
    return [
        FirstStep("An API key", has_key, "Make one below."),
        FirstStep(
            "A worker that explores",
            has_worker,
            "make run starts one here; on another machine: celery -A tuning worker.",
        ),
        FirstStep("The first lookup", has_hit or has_traffic or has_asked, "Run the request below."),
        FirstStep("The first hit", has_hit, "The same request again, some seconds after it missed."),
        FirstStep("The first model", has_model, "Take the sample, or give your own."),
    ]


def open_steps(viewer: Viewer, began: datetime | None) -> list[FirstStep]:
    """All of them for who began lately (``statistics.began``) and has not taken each; else none."""
    if began is not None and began < timezone.now() - NEW_FOR:
        return []
    every = steps(viewer)
    return [] if all(step.done for step in every) else every
