"""The overview: hit rate, queues and why something waits, what is explored now, workers."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from catalog.selectors import traffic
from dashboard import charts
from dashboard.pages.live import Part
from dashboard.selectors import running
from dashboard.selectors.visible import visible

RANGES = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    seen = visible(request.user)
    totals = traffic.totals(seen)
    if not totals.operators:
        context = {"workers": running.workers(), "host": request.build_absolute_uri("/").rstrip("/")}
        return render(request, "overview_empty.html", context)
    now = timezone.now()
    chosen = request.GET.get("range", "")
    if chosen not in RANGES:
        began = traffic.began()
        chosen = "24h" if began is None or now - began < RANGES["24h"] else "7d"
    slots = traffic.lookups(now - RANGES[chosen], now, by_day=chosen == "30d")
    wins = traffic.wins_by_method(seen)
    hits, misses = sum(slot.hits for slot in slots), sum(slot.misses for slot in slots)
    figures = {
        "totals": totals,
        "wins": wins,
        "win_shares": {name: n / max(wins.values()) for name, n in wins.items()},
        "methods": charts.METHODS,
        "ranges": list(RANGES),
        "chosen": chosen,
        "slots": [slot for slot in slots if slot.hits + slot.misses][::-1],
        "asked": hits + misses,
        "hits": hits,
        "hit_rate": hits / (hits + misses) if hits + misses else None,
        "chart": charts.hit_rate(slots),
        "waits": running.waits(seen),
        "live": _live(request).html,
    }
    return render(request, "overview.html", figures)


@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """The parts that move: asked for again every few seconds."""
    return _live(request).response()


def _live(request: HttpRequest) -> Part:
    seen = visible(request.user)
    queues = running.queues(seen)
    context = {
        "queues": queues,
        "queued": sum(queue.queued for queue in queues),
        "running_now": sum(queue.running for queue in queues),
        "explored_today": running.finished_since(seen, timezone.now() - timedelta(hours=24)),
        "reasons": traffic.misses_by_reason(seen),
        "recent": running.recent(seen),
        "workers": running.workers(),
        "pauses": running.pauses(),
    }
    return Part(request, "_overview_live.html", context, path=reverse("overview-live"), every_s=3)
