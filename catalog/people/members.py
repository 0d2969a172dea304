"""People: organisations, members with their roles, invitations, accounts that are switched off."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core import signing
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from catalog.errors import RequestError, Unknown
from catalog.models import ApiKey, Invitation, Membership, Organisation, Role
from catalog.people.own_keys import closing_keys_beyond
from catalog.people.sessions import end_sessions, renew_sessions

if TYPE_CHECKING:
    from django.contrib.auth.models import User

INVITATION_LIFE = timedelta(days=7)
_SALT = "opatlas.invitation"


class MembershipRefused(RequestError):
    """Understood, and it would leave somebody locked out, or was done already."""

    status = 409


@contextmanager
def _unique(taken: str, where: str) -> Iterator[None]:
    """A name that another row has is refused with this sentence."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError:
        raise MembershipRefused(taken, where) from None


def make_organisation(name: str) -> Organisation:
    """A new tenant."""
    with _unique("There is an organisation of this name already.", "name"):
        return Organisation.objects.create(name=_name(name))


def rename_organisation(organisation: Organisation, name: str) -> Organisation:
    name = _name(name)
    with _unique("There is an organisation of this name already.", "name"):
        Organisation.objects.filter(pk=organisation.pk).update(name=name)
    organisation.name = name
    return organisation


def change_role(membership: Membership, role: str) -> Membership:
    """Give a member another role; the last admin keeps it. The member's sessions get other keys, and API keys
    of the member with scopes that the role no longer allows are closed: a role of the host's in every
    organisation."""
    role = _role(role)
    with transaction.atomic():
        row = _locked(membership)
        if row.role == Role.ADMIN and role != Role.ADMIN:
            _refuse_last_admin(row)
        with closing_keys_beyond([row.user_id]):
            Membership.objects.filter(pk=row.pk).update(role=role)
    renew_sessions(membership.user_id)
    membership.role = role
    return membership


def remove_member(membership: Membership) -> int:
    """Take a member out, and close the keys that the person had or made there; gives how many. Sessions are
    the person's, not the organisation's: who looks is asked anew for every page, so that they end no
    sooner."""
    with transaction.atomic():
        row = _locked(membership)
        if row.role == Role.ADMIN:
            _refuse_last_admin(row)
        closed = _close_keys(row.user_id, organisation=row.organisation_id)
        with closing_keys_beyond([row.user_id]):
            row.delete()
    return closed


def deactivate(user: User) -> None:
    """Switch an account off: nobody logs in with it; its keys and those it made are closed. Nothing of it is
    deleted."""
    with transaction.atomic():
        for row in user.memberships.select_for_update().filter(role=Role.ADMIN):  # type: ignore[attr-defined]
            _refuse_last_admin(row)
        get_user_model().objects.filter(pk=user.pk).update(is_active=False)
        _close_keys(user.pk)
    end_sessions(user.pk)
    user.is_active = False


def _close_keys(user_id: int, **where: object) -> int:
    """A person's own, and services' keys whose text the person knows, having made them."""
    keys = ApiKey.objects.filter(Q(user=user_id) | Q(made_by=user_id), revoked_at=None, **where)
    return keys.update(revoked_at=timezone.now())


def reactivate(user: User) -> None:
    """Switch an account on again; closed keys stay closed."""
    get_user_model().objects.filter(pk=user.pk).update(is_active=True)
    user.is_active = True


def invite(
    organisation: Organisation, role: str, *, email: str = "", by: User | None = None
) -> tuple[Invitation, str]:
    """An invitation and its token, which opens it once within a week."""
    email = _plain(email, 254)
    if email:
        try:
            validate_email(email)
        except ValidationError:
            raise RequestError("This is no e-mail address.", "email") from None
    row = Invitation.objects.create(
        organisation=organisation,
        role=_role(role),
        email=email,
        nonce=secrets.token_hex(16),
        invited_by=by,
        expires_at=timezone.now() + INVITATION_LIFE,
    )
    return row, signing.dumps({"invitation": row.nonce}, salt=_SALT)


def read_invitation(token: str, now: datetime | None = None) -> Invitation:
    """The invitation that a token opens; the sentence says why it opens none."""
    try:
        nonce = signing.loads(token, salt=_SALT, max_age=INVITATION_LIFE)["invitation"]
    except signing.SignatureExpired:
        raise Unknown("This invitation has expired: ask for another one.") from None
    except (signing.BadSignature, KeyError, TypeError):
        raise Unknown("This link opens no invitation: it was cut short or changed.") from None
    row = Invitation.objects.select_related("organisation", "invited_by").filter(nonce=nonce).first()
    if row is None:
        raise Unknown("This link opens no invitation: it was cut short or changed.")
    if row.accepted_at is not None:
        raise MembershipRefused("This invitation was used already.")
    if row.withdrawn_at is not None:
        raise MembershipRefused("This invitation was withdrawn: ask for another one.")
    if row.expires_at <= (now or timezone.now()):
        raise Unknown("This invitation has expired: ask for another one.")
    return row


def accept(invitation: Invitation, user: User) -> Membership:
    """Somebody with an account takes an invitation; whoever is a member already keeps the role of before."""
    with transaction.atomic():
        _take(invitation, user)
        row, _ = Membership.objects.get_or_create(
            user=user, organisation=invitation.organisation, defaults={"role": invitation.role}
        )
    return row


def name_ending(organisation: Organisation) -> str:
    """How the names of accounts end that invitations to this organisation make. Names are each organisation's
    own, so that "this name is taken" tells nobody who has an account elsewhere."""
    return f"@{organisation.pk}"


def accept_with_account(invitation: Invitation, username: str, password: str) -> User:
    """Make the account of who was invited, with the password that the person chose."""
    ending = name_ending(invitation.organisation)
    if not username.strip().endswith(ending):
        raise RequestError(f"A user name ends in {ending} here, as in ada{ending}.", "username")
    user = make_user(username, password, email=invitation.email)
    try:
        accept(invitation, user)
    except RequestError:
        user.delete()
        raise
    return user


def withdraw_invitation(invitation: Invitation) -> None:
    """Close an invitation that nobody took; closing it twice changes nothing."""
    open_rows = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, withdrawn_at=None)
    if open_rows.update(withdrawn_at=timezone.now()) == 0 and invitation.accepted_at is not None:
        raise MembershipRefused("This invitation was used already: remove the member instead.")


def make_user(username: str, password: str, *, email: str = "") -> User:
    """An account without any membership."""
    users = get_user_model()
    username = users.normalize_username(_plain(username, 150))
    try:
        UnicodeUsernameValidator()(username)
    except ValidationError:
        raise RequestError(
            "A user name has letters, digits and @ . + - _ only, at most 150 of them.", "username"
        ) from None
    try:
        validate_password(password, users(username=username, email=email))
    except ValidationError as error:
        raise RequestError(" ".join(error.messages), "password") from None
    with _unique("This user name is taken: choose another one.", "username"):
        return users.objects.create_user(username, email=email, password=password)


def _take(invitation: Invitation, user: User) -> None:
    taken = Invitation.objects.filter(
        pk=invitation.pk, accepted_at=None, withdrawn_at=None, expires_at__gt=timezone.now()
    ).update(accepted_at=timezone.now(), accepted_by=user)
    if taken != 1:
        raise MembershipRefused("This invitation was used, withdrawn or has expired: ask for another one.")


def _locked(membership: Membership) -> Membership:
    # Every admin's row of the organisation is locked: two admins cannot remove each other at once.
    rows = list(Membership.objects.select_for_update().filter(organisation=membership.organisation_id))
    for row in rows:
        if row.pk == membership.pk:
            return row
    raise Unknown("This person is no member any more.")


def _refuse_last_admin(row: Membership) -> None:
    others = Membership.objects.filter(
        organisation=row.organisation_id, role=Role.ADMIN, user__is_active=True
    ).exclude(pk=row.pk)
    if not others.exists():
        raise MembershipRefused(
            "An organisation keeps at least one admin: make somebody else an admin first.", "role"
        )


def _role(text: str) -> str:
    if text not in Role.values:
        raise RequestError(f"A role is one of {', '.join(Role.values)}.", "role")
    return text


def _name(text: str) -> str:
    name = _plain(" ".join(str(text).split()), 200)
    if not name:
        raise RequestError("An organisation's name has 1 to 200 characters.", "name")
    return name


def _plain(text: str, most: int) -> str:
    text = str(text).strip()
    if "\0" in text or len(text) > most:
        raise RequestError(f"A text of at most {most} characters, without NUL, is needed here.")
    return text
