"""People: the members of an organisation with their roles, invitations, and (for the host) organisations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from catalog.models import Invitation, Membership, Organisation, Role
from catalog.people import audit
from catalog.people import members as people
from catalog.viewing import ADMINISTER
from dashboard.pages.people.invitations import send_invitation
from dashboard.web.own_rows import administered
from dashboard.web.requests import ViewerRequest, number_in, refusals_said
from dashboard.web.tables import Column, Table, exported
from opatlas.errors import CallerError

ROLES = {
    Role.VIEWER: "looks",
    Role.OPERATOR: "steers queues and explorations, uploads models, submits kernels",
    Role.APPROVER: "decides on kernels, revokes implementations",
    Role.BILLING: "sees and sets prices, credit and the ledger",
    Role.ADMIN: "all of it, and people and keys",
}
"""What each role allows, as the page says it."""


_MEMBERS = (
    Column("name", "Name", value=lambda one: one.user.get_username(), part="people/_member.html", css="lead"),
    Column("role", "Role", part="people/_member_role.html", room_px=132),
    Column("active", value=lambda one: "yes" if one.user.is_active else "no", only="export"),
    Column("joined_at", "Member since", "when", "created_at", css="muted"),
    Column(
        "actions",
        "Actions",
        "actions",
        part="people/_member_actions.html",
        css="number",
        only="page",
        room_px=176,
    ),
)


@require_safe
def members(request: ViewerRequest) -> HttpResponse:
    return _page(request, administered(request))


def _page(
    request: ViewerRequest, organisation: Organisation, link: str = "", wrong: str = "", status: int = 200
) -> HttpResponse:
    """The page; ``link`` opens an invitation, is stored nowhere, and is only in this answer."""
    rows = _members(organisation)
    empty = f"Nobody belongs to {organisation} yet: invite its first admin."
    table = Table("members", f"Members of {organisation}", _MEMBERS, rows, empty, css="stacks")
    if (answer := exported(request, table)) is not None:
        return answer
    waiting = organisation.invitations.filter(
        accepted_at=None, withdrawn_at=None, expires_at__gt=timezone.now()
    )
    whole = request.viewer.may(ADMINISTER)
    context = {
        "organisation": organisation,
        "table": table,
        "roles": [(role, Role(role).label, ROLES[role]) for role in Role],
        "invitations": waiting.select_related("invited_by").order_by("-pk")[:100],
        "link": link,
        "wrong": wrong,
        "given": request.POST,
        "organisations": _organisations() if whole else [],
        "whole": whole,
    }
    answer = render(request, "people/people.html", context, status=status)
    answer["Cache-Control"] = "no-store"
    return answer


@require_POST
def invite(request: ViewerRequest) -> HttpResponse:
    """An invitation: by e-mail where the service sends any, else as a link that is shown once."""
    organisation, given = administered(request), request.POST
    user: Any = request.user
    try:
        row, token = people.invite(organisation, given.get("role", ""), email=given.get("email", ""), by=user)
    except CallerError as error:
        return _page(request, organisation, wrong=str(error), status=400)
    _note(request, "member.invite", organisation, row.email or "by link", role=row.role)
    link = request.build_absolute_uri(reverse("invited", args=(token,)))
    if not send_invitation(row, link):
        return _page(request, organisation, link=link)
    messages.success(request, f"The invitation was sent to {row.email}; it holds for a week.")
    return redirect("people")


@require_POST
def withdraw(request: ViewerRequest, pk: int) -> HttpResponse:
    """Close an invitation that nobody took yet."""
    organisation = administered(request)
    row = get_object_or_404(Invitation, pk=pk, organisation=organisation)
    with refusals_said(request):
        people.withdraw_invitation(row)
        _note(request, "member.uninvite", organisation, row.email or "by link")
        messages.success(request, "The invitation was withdrawn: its link opens nothing any more.")
    return redirect("people")


@require_POST
def change(request: ViewerRequest, pk: int) -> HttpResponse:
    """Another role for a member."""
    row = _membership(request, pk)
    before = row.role
    with refusals_said(request):
        people.change_role(row, request.POST.get("role", ""))
        _note(request, "member.role", row.organisation, str(row.user), before=before, after=row.role)
        messages.success(request, f"{row.user} is now {Role(row.role).label.lower()}.")
    return redirect("people")


@require_POST
def remove(request: ViewerRequest, pk: int) -> HttpResponse:
    """Take a member out; the keys that the person has there are closed."""
    row = _membership(request, pk)
    with refusals_said(request):
        closed = people.remove_member(row)
        _note(request, "member.remove", row.organisation, str(row.user), role=row.role)
        keys = f" Keys of theirs, or made by them, that are closed now: {closed}." if closed else ""
        messages.success(request, f"{row.user} is no member any more.{keys}")
    return redirect("overview" if row.user_id == request.user.pk else "people")


@require_POST
def switch_account(request: ViewerRequest, pk: int, verb: str) -> HttpResponse:
    """Switch an account off or on again: for administrators of the whole service."""
    _whole_service(request)
    user = get_object_or_404(get_user_model(), pk=pk)
    verbs: dict[str, Callable[[Any], None]] = {"off": people.deactivate, "on": people.reactivate}
    if verb not in verbs:
        raise Http404(f"There is no {verb!r}.")
    with refusals_said(request):
        verbs[verb](user)
        audit.note(request, action=f"account.{verb}", subject=user.get_username())
        messages.success(request, f"The account of {user} was switched {verb}.")
    return redirect("people")


@require_POST
def organisations(request: ViewerRequest) -> HttpResponse:
    """A new organisation, or another name for one."""
    number, name = (request.POST.get(field, "") for field in ("organisation", "name"))
    if number:
        row = _named(request, number_in(number) or 0)
        before = row.name
        with refusals_said(request):
            people.rename_organisation(row, name)
            _note(request, "organisation.rename", row, row.name, before=before)
            messages.success(request, f"{before} is now called {row.name}.")
    else:
        _whole_service(request)
        with refusals_said(request):
            made = people.make_organisation(name)
            _note(request, "organisation.make", made, made.name)
            messages.success(request, f"{made.name} was made: invite its first admin.")
    return redirect("people")


def _note(
    request: ViewerRequest, action: str, organisation: Organisation, subject: str, **detail: str
) -> None:
    audit.note(request, action=action, subject=subject, detail=detail, organisation=organisation)


def _members(organisation: Organisation) -> list[Membership]:
    return list(organisation.memberships.select_related("user").order_by("user__username"))


def _organisations() -> list[Organisation]:
    return list(Organisation.objects.annotate(members=Count("memberships")).order_by("-host", "name")[:500])


def _membership(request: ViewerRequest, pk: int) -> Membership:
    rows = Membership.objects.select_related("user", "organisation")
    return get_object_or_404(rows, pk=pk, organisation=administered(request))


def _named(request: ViewerRequest, pk: int) -> Organisation:
    if not request.viewer.may(ADMINISTER, pk):
        raise Http404("There is no such organisation.")
    return get_object_or_404(Organisation, pk=pk)


def _whole_service(request: ViewerRequest) -> None:
    if not request.viewer.may(ADMINISTER):
        raise PermissionDenied("Only administrators of the whole service do this.")
