"""The first steps: a key made for whoever looks, the first lookup with it, a sample model; ticked live."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from catalog.models import Operator
from catalog.people import audit
from catalog.people.keys import facts_of
from catalog.people.own_keys import make_own_key
from dashboard.pages.overview.steps import steps
from dashboard.pages.people.own_keys import place_of
from dashboard.pages.work.current_work import troubles_shown
from dashboard.web.live import Part
from dashboard.web.requests import ViewerRequest
from opatlas.errors import CallerError
from tuning.statistics.workers import fleet

KEY_NAME = "First lookup"


@require_safe
def begin(request: ViewerRequest) -> HttpResponse:
    return begin_page(request)


@require_safe
def live(request: ViewerRequest) -> HttpResponse:
    """The steps: asked for again every few seconds."""
    return _live(request).response()


@require_POST
def make_key(request: ViewerRequest) -> HttpResponse:
    """A key for whoever asks, in the request to be copied: this answer alone shows it."""
    user: Any = request.user
    place = place_of(request)
    if place is None:
        return begin_page(request, wrong="You belong to no organisation yet: ask to be invited.", status=403)
    try:
        key, text = make_own_key(user, place, KEY_NAME, ["lookup"])
    except CallerError as error:
        return begin_page(request, wrong=str(error), status=403)
    audit.note(request, action="key.create", subject=str(key), detail=facts_of(key), organisation=place)
    return begin_page(request, made=text)


def begin_page(request: ViewerRequest, made: str = "", wrong: str = "", status: int = 200) -> HttpResponse:
    """``made``: a new key's text, which is stored nowhere."""
    context = {
        **troubles_shown(request.viewer, fleet()),
        "live": _live(request).html,
        "host": request.build_absolute_uri("/").rstrip("/"),
        "place": place_of(request),
        "asked": Operator.objects.exists(),
        "made": made,
        "wrong": wrong,
    }
    answer = render(request, "overview/begin.html", context, status=status)
    answer["Cache-Control"] = "no-store"
    return answer


def _live(request: ViewerRequest) -> Part:
    shown = steps(request.viewer)
    every_s = None if all(step.done for step in shown) else 3
    context = {"steps": shown}
    return Part(request, "overview/_steps.html", context, path=reverse("begin-live"), every_s=every_s)
