"""Who looks: which organisations' rows a person or an API key sees, and what they may do.

The shared catalogue is common; jobs, usage, models, bills and private entries are their organisation's own.
A member of the host organisation (the platform's own) sees every tenant, and a role there holds for the whole
service; a role in a tenant holds for what that tenant owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from django.db.models import Q

from catalog.models import EVERYBODY, SHARED, ApiKey, Membership, Organisation, Role, ScopedKey

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User

OPERATE, APPROVE, BILL, ADMINISTER = "operate", "approve", "bill", "administer"

MAY: Mapping[str, frozenset[str]] = {
    Role.VIEWER: frozenset(),
    Role.OPERATOR: frozenset({OPERATE}),
    Role.APPROVER: frozenset({APPROVE}),
    Role.BILLING: frozenset({BILL}),
    Role.ADMIN: frozenset({OPERATE, APPROVE, BILL, ADMINISTER}),
}
"""Role → what it allows beside looking."""

SUBMIT = frozenset({OPERATE, APPROVE})
"""Who is allowed one of these submits kernels: on the page, and by a key of their own."""

# What an API key's scopes stand for, where a page would ask for a role.
_SCOPE_ROLES = {
    "operate": Role.OPERATOR,
    "approve": Role.APPROVER,
    "billing": Role.BILLING,
    "admin": Role.ADMIN,
}


@dataclass(frozen=True)
class Viewer:
    """Somebody who looks at pages or asks the API. ``focus``: the one organisation whose own rows are shown
    now; None for somebody of the host, who looks at all of them at once, and for who belongs to none."""

    name: str = ""
    roles: Mapping[int, frozenset[str]] = field(
        default_factory=dict
    )  # organisation id → what is allowed there
    everywhere: frozenset[str] | None = None  # allowed service-wide; None: not of the host organisation
    focus: int | None = None

    @property
    def sees_all(self) -> bool:
        """Of the host organisation: every tenant's rows are open."""
        return self.everywhere is not None

    @property
    def tenant(self) -> str:
        """Whose rollup rows to read: ``all``, ``org:<id>``, or ``""`` where there are none to be seen."""
        if self.focus is not None:
            return f"org:{self.focus}"
        return EVERYBODY if self.sees_all else ""

    @property
    def payer(self) -> int | None:
        """Who would have to pay for what is looked at: an organisation's id; 0 for somebody of none, who has
        paid for nothing; None for who runs the service, to whom everything is open."""
        if self.focus is not None:
            return self.focus
        return None if self.sees_all else 0

    def may(self, what: str, organisation_id: int | None = None) -> bool:
        """Whether this is allowed: service-wide, or (with an organisation) on what it owns."""
        if self.everywhere is not None and what in self.everywhere:
            return True
        return organisation_id is not None and what in self.roles.get(organisation_id, ())

    def shown(self, prefix: str = "") -> Q:
        """Scoped rows (bests, implementations, misses, explorations) that may be seen: shared and own; for
        the host those of ``focus``, or all. ``prefix`` leads to them: ``"exploration__"``."""
        scopes = self.scopes
        return Q() if scopes is None else Q(**{f"{prefix}scope__in": scopes})

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes of :meth:`shown`; None: every one."""
        if self.sees_all and self.focus is None:
            return None
        own = {*self.roles} | ({self.focus} if self.focus is not None else set())
        return (SHARED, *(f"org:{number}" for number in sorted(own)))

    def owned(self, field_name: str = "organisation") -> Q:
        """Rows of an organisation (jobs, usage, models, bills) that may be seen now: those of ``focus``, or
        every one for the host; for who belongs to none, none."""
        if self.focus is not None:
            return Q(**{field_name: self.focus})
        return Q() if self.sees_all else Q(pk__in=[])

    def may_on(self, what: str, row: ScopedKey) -> bool:
        """Whether this is allowed on a scoped row: shared ones are the service's, others their owner's."""
        return self.may(what, row.owner_id if row.scope != SHARED else None)

    # Templates cannot call with an argument.
    @property
    def may_operate(self) -> bool:
        return self.may(OPERATE)

    @property
    def may_approve(self) -> bool:
        return self.may(APPROVE)

    @property
    def may_bill(self) -> bool:
        return self.may(BILL, self.focus)

    @property
    def may_administer(self) -> bool:
        return self.may(ADMINISTER, self.focus)

    @property
    def may_price(self) -> bool:
        """Whether prices and credit are theirs to see and set: those are the whole service's."""
        return self.may(BILL)

    @property
    def may_submit(self) -> bool:
        """Whether they submit kernels: for an organisation of theirs, or, who administers the service without
        belonging to one, for the service."""
        return self.submits_for is not None or self.may(ADMINISTER)

    @property
    def submits_for(self) -> int | None:
        """The organisation that this person's kernels are of: the one looked at, else the first whose role
        allows it; None where none does."""
        places = [number for number, allowed in self.roles.items() if SUBMIT & allowed]
        return self.focus if self.focus in places else next(iter(places), None)

    def focused(self, organisation_id: int | None) -> Viewer:
        """The same person looking at one organisation; at one that is not open nothing changes."""
        if organisation_id is None:
            return replace(self, focus=None) if self.sees_all else self
        known = self.sees_all or organisation_id in self.roles
        return replace(self, focus=organisation_id) if known else self


NOBODY = Viewer()


def viewer_of(user: User | AnonymousUser) -> Viewer:
    """A logged-in person, by memberships (one statement). A superuser may do everything everywhere."""
    if not user.is_authenticated:
        return NOBODY
    rows = list(
        Membership.objects.filter(user=user.pk)
        .values_list("organisation_id", "organisation__host", "role")
        .order_by("pk")
    )
    roles = {organisation: MAY[role] for organisation, _, role in rows}
    hosts = [MAY[role] for _, host, role in rows if host]
    everywhere = frozenset[str]().union(*hosts) if hosts else None
    if user.is_superuser:
        everywhere = MAY[Role.ADMIN]
    focus = None if everywhere is not None else next(iter(roles), None)
    return Viewer(user.get_username(), roles, everywhere, focus)


def viewer_of_key(key: ApiKey) -> Viewer:
    """An API key: its organisation, and what its scopes stand for. A host's key sees all tenants only with a
    scope that runs the service (operate, approve, billing, admin); a job's key sees its own organisation."""
    allowed = frozenset[str]().union(
        *(MAY[_SCOPE_ROLES[scope]] for scope in key.scopes if scope in _SCOPE_ROLES)
    )
    organisation: Organisation = key.organisation
    runs = organisation.host and bool(_SCOPE_ROLES.keys() & set(key.scopes))
    return Viewer(
        str(key),
        {organisation.pk: allowed},
        allowed if runs else None,
        None if runs else organisation.pk,
    )
