"""A newcomer's first steps, ticked off as they happen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from catalog.models import ApiKey, Miss, Model, TrafficSlot, Usage
from catalog.selectors import statistics
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
    """Of the organisation that is looked at, or of all of them."""
    owned = viewer.owned()
    has_hit = Usage.objects.filter(owned).exists()
    return [
        FirstStep("An API key", ApiKey.objects.filter(owned, revoked_at=None).exists(), "Make one below."),
        FirstStep(
            "A worker that explores",
            Worker.objects.filter(alive()).exists(),
            "make run starts one here; on another machine: celery -A tuning worker.",
        ),
        FirstStep("The first lookup", has_hit or _has_asked(viewer), "Run the request below."),
        FirstStep("The first hit", has_hit, "The same request again, some seconds after it missed."),
        FirstStep(
            "The first model", Model.objects.filter(owned).exists(), "Take the sample, or give your own."
        ),
    ]


def open_steps(viewer: Viewer) -> list[FirstStep]:
    """All of them for who began lately and has not taken each; else none."""
    began = statistics.began(viewer)
    if began is not None and began < timezone.now() - NEW_FOR:
        return []
    every = steps(viewer)
    return [] if all(step.done for step in every) else every


def _has_asked(viewer: Viewer) -> bool:
    """A model's operators are asked for too, by no key."""
    if TrafficSlot.objects.filter(tenant=viewer.tenant).exists():
        return True
    asked = Miss.objects.filter(viewer.owned("api_key__organisation"), api_key__isnull=False)
    return asked.exists()
