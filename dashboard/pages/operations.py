"""What administrators do to queues: pause, resume, retry, discard, prioritise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from dashboard.selectors.visible import visible
from opatlas.errors import CallerError
from tuning import queues
from tuning.models import Exploration, State


@dataclass(frozen=True)
class Action:
    """One thing that can be done to an exploration, in the states that allow it."""

    verb: str
    text: str
    icon: str
    states: tuple[str, ...]


ACTIONS = (
    Action("pause", "Pause", "pause", (State.QUEUED, State.RUNNING)),
    Action("resume", "Resume", "play", (State.PAUSED,)),
    Action("retry", "Explore again", "retry", (State.DONE, State.DEAD, State.UNSUPPORTED, State.DISCARDED)),
    Action("discard", "Discard", "cross", (State.QUEUED, State.RUNNING, State.PAUSED)),
)


def possible(exploration: Exploration, request: HttpRequest) -> list[Action]:
    """What this person can do to it now."""
    if not request.user.is_staff:
        return []
    return [action for action in ACTIONS if exploration.state in action.states]


@require_POST
def act(request: HttpRequest, pk: int, verb: str) -> HttpResponse:
    """Do one of the actions to one exploration, and go back to its page."""
    _staff_only(request)
    get_object_or_404(Exploration.objects.filter(visible(request.user)), pk=pk)
    by = f"by {request.user.get_username()}"
    verbs: dict[str, Callable[[], object]] = {
        "pause": lambda: queues.pause_exploration(pk, f"paused {by}"),
        "resume": lambda: queues.resume_exploration(pk),
        "retry": lambda: queues.retry(pk),
        "discard": lambda: queues.discard(pk, f"discarded {by}"),
        "prioritise": lambda: queues.prioritise(pk, _priority(request)),
    }
    if verb not in verbs:
        raise Http404(f"There is no action {verb!r}.")
    _try(request, verbs[verb])
    return redirect("exploration", pk)


@require_POST
def queue(request: HttpRequest, verb: str) -> HttpResponse:
    """Pause or resume every queue."""
    _staff_only(request)
    if verb == "pause":
        _try(request, lambda: queues.pause(reason=f"paused by {request.user.get_username()}"))
    elif verb == "resume":
        _try(request, lambda: queues.resume(request.POST.get("capability", queues.EVERYTHING)))
    else:
        raise Http404(f"There is no action {verb!r}.")
    return redirect("overview")


def _priority(request: HttpRequest) -> int:
    text = request.POST.get("priority", "")
    if not text.isdecimal():
        raise CallerError("A priority is one of 0 (urgent), 1 (high), 2 (normal), 3 (low).")
    return int(text)


def _try(request: HttpRequest, do: Callable[[], object]) -> None:
    try:
        do()
    except CallerError as error:
        messages.error(request, str(error))


def _staff_only(request: HttpRequest) -> None:
    if not request.user.is_staff:
        raise PermissionDenied("Only administrators operate the queues.")
