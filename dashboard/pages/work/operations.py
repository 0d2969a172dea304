"""What people do to queues, explorations and misses. ``tuning.queue.permissions`` says who may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from catalog.errors import Unknown
from catalog.people.audit import note
from dashboard.web.requests import ViewerRequest, number_in, refusals_said, safe_next
from opatlas.errors import CallerError
from tuning.models import Exploration, State
from tuning.queue import permissions as operating
from tuning.queue import steering as queues
from tuning.queue.permissions import Done, NotAllowed, Order

SHOWN_REFUSALS = 3


@dataclass(frozen=True)
class Action:
    """One thing that can be done to an exploration, in the states that allow it."""

    verb: str
    text: str
    icon: str
    states: tuple[str, ...]
    takes_reason: bool = False


ACTIONS = (
    Action("pause", "Pause", "pause", (State.QUEUED, State.RUNNING)),
    Action("resume", "Resume", "play", (State.PAUSED,)),
    Action("retry", "Explore again", "retry", (State.DONE, State.DEAD, State.UNSUPPORTED, State.DISCARDED)),
    Action("discard", "Discard", "cross", (State.QUEUED, State.RUNNING, State.PAUSED, State.DEAD), True),
)


def possible(exploration: Exploration, request: ViewerRequest) -> list[Action]:
    """What this person can do to it now."""
    if not operating.may_operate(request.viewer, exploration.owner_id):
        return []
    return [action for action in ACTIONS if exploration.state in action.states]


@require_POST
def act(request: ViewerRequest, pk: int, verb: str) -> HttpResponse:
    """Do one of the actions to one exploration, and go back to its page."""
    order = _order(request, verb, operating.VERBS)

    with _refusals(request):
        row = operating.act(request.viewer, pk, order)
        _note(request, "exploration", pk, order, row.owner_id)
    return redirect("exploration", pk)


@require_POST
def act_on_miss(request: ViewerRequest, pk: int, verb: str) -> HttpResponse:
    """Explore a miss now, or discard it, and go back to where the person was."""
    order = _order(request, verb, operating.MISS_VERBS)

    with _refusals(request):
        miss = operating.act_on_miss(request.viewer, pk, order)
        _note(request, "miss", pk, order, miss.owner_id)
        messages.success(request, f"{miss.operator.summary}: {_PAST[f'miss {verb}']}.")
    return redirect(safe_next(request, reverse("collect")))


@require_POST
def act_on_many(request: ViewerRequest) -> HttpResponse:
    """The same action for every exploration that was chosen in the list."""
    order = _order(request, request.POST.get("verb", ""), operating.VERBS)
    return _many(request, order, operating.act_on_many, "exploration", reverse("explorations"))


@require_POST
def act_on_misses(request: ViewerRequest) -> HttpResponse:
    """The same action for every miss that was chosen in the list."""
    order = _order(request, request.POST.get("verb", ""), operating.MISS_VERBS)
    return _many(request, order, operating.act_on_misses, "miss", reverse("collect"))


@require_POST
def queue(request: ViewerRequest, verb: str) -> HttpResponse:
    """Pause or resume a capability's queues, or all of them."""
    capability = request.POST.get("capability", queues.EVERYTHING)[:80]
    reason = request.POST.get("reason", "").strip()
    viewer = request.viewer
    by = request.user.get_username()
    if verb == "pause":
        why = f"{reason[:250]} (paused by {by})" if reason else ""
        with _refusals(request):
            operating.pause_queue(viewer, capability, why, by)
    elif verb == "resume":
        with _refusals(request):
            operating.resume_queue(viewer, capability)
    else:
        raise Http404(f"There is no action {verb!r}.")
    note(request, action=f"queue.{verb}", subject=capability, detail={"reason": reason})
    return redirect(safe_next(request, reverse("queues")))


@require_POST
def weight(request: ViewerRequest) -> HttpResponse:
    """Set what an organisation weighs when the workers are shared out."""
    number = number_in(request.POST.get("organisation", ""))
    with _refusals(request):
        row = operating.set_weight(request.viewer, number or 0, _weight(request.POST.get("weight", "")))
        note(request, action="queue.weight", subject=row.name, detail={"weight": request.POST["weight"][:20]})
        messages.success(request, f"The weight of {row.name} was set.")
    return redirect(reverse("queues") + "#shares")


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0  # which is refused, with what would be right


_PAST = {
    "exploration pause": "paused",
    "exploration resume": "resumed",
    "exploration retry": "queued again",
    "exploration discard": "discarded",
    "exploration prioritise": "moved to another priority",
    "miss explore": "sent to be explored",
    "miss discard": "discarded",
}
_PLURAL = {"exploration": "explorations", "miss": "misses"}


def _many(
    request: ViewerRequest, order: Order, act_on: Callable[..., Done], what: str, otherwise: str
) -> HttpResponse:
    chosen = [pk for pk in map(number_in, request.POST.getlist("id")) if pk is not None]
    if not chosen:
        messages.error(request, f"Choose one or more {_PLURAL[what]} first.")
        return redirect(safe_next(request, otherwise))
    try:
        came = act_on(request.viewer, chosen, order)
    except CallerError as error:
        messages.error(request, str(error))
        return redirect(safe_next(request, otherwise))
    if came.done:
        count = len(came.done)
        said = f"{count} {what if count == 1 else _PLURAL[what]} {_PAST[f'{what} {order.verb}']}."
        messages.success(request, said)
        note(
            request,
            action=f"{what}.{order.verb}",
            subject=f"{count} at once",
            detail=_detail(order) | {"ids": list(came.done)},
        )
    else:
        note(request, skip=True)
    for refused in came.refused[:SHOWN_REFUSALS]:
        messages.error(request, refused.error)
    if len(came.refused) > SHOWN_REFUSALS:
        messages.error(request, f"And {len(came.refused) - SHOWN_REFUSALS} more could not be.")
    return redirect(safe_next(request, otherwise))


def _order(request: ViewerRequest, verb: str, verbs: tuple[str, ...]) -> Order:
    if verb not in verbs:
        raise Http404(f"There is no action {verb[:40]!r}.")
    text = request.POST.get("priority", "")
    priority = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else None
    reason = request.POST.get("reason", "").replace("\0", "").strip()[:300]
    return Order(verb, request.user.get_username(), reason, priority)


def _detail(order: Order) -> dict[str, object]:
    return {"reason": order.reason, "priority": order.priority}


def _note(request: ViewerRequest, what: str, pk: int, order: Order, owner_id: int | None) -> None:
    note(
        request,
        action=f"{what}.{order.verb}",
        subject=f"{what} {pk}",
        detail=_detail(order),
        organisation=owner_id,
    )


@contextmanager
def _refusals(request: ViewerRequest) -> Iterator[None]:
    """What cannot be is said on the page; what is not theirs is refused outright."""
    with refusals_said(request):
        try:
            yield
        except NotAllowed as error:
            raise PermissionDenied(str(error)) from error
        except Unknown as error:
            raise Http404(str(error)) from error
