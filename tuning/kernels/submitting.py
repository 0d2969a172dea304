"""Submitting: a checked source becomes a version. Editing is submitting under a name that there is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from catalog.errors import QuotaUsed, RequestError, TooLarge, Unknown
from catalog.models import Operator as OperatorRow
from catalog.models import Organisation
from catalog.viewing import ADMINISTER, viewer_of
from opatlas.errors import CallerError
from opatlas.identity import Operator
from opatlas.identity.operator import canonical_json
from tuning.conf import conf
from tuning.kernels.binding import withdraw_version
from tuning.kernels.caught import refuse_caught
from tuning.kernels.models import LIVE_STATES, Kernel, KernelVersion, VersionState
from tuning.kernels.planning import plan, ring_for
from tuning.kernels.source_digest import source_digest, tokens_digest
from tuning.kernels.states import KernelNotAllowed, NotInThatState, move, record, stop_evaluating
from tuning.routes.manual.flags import check_flags
from tuning.routes.manual.launch_template import check_template
from tuning.routes.manual.matching import parse_pattern
from tuning.routes.manual.submitted import MAX_SOURCE_BYTES

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,79}")
MAX_PATTERN_BYTES = 32 << 10


@dataclass(frozen=True)
class Submission:
    """What somebody submits. ``example`` is the key of an operator to evaluate it on."""

    name: str
    source: str
    pattern: Mapping[str, Any]
    language: str = "c"
    flags: Sequence[str] = field(default=())
    launch: Mapping[str, Any] | None = None  # device code's: tuning.routes.manual.launch_template
    author: str = ""
    licence: str = ""  # an SPDX expression: "MIT", "Apache-2.0"
    description: str = ""
    example: str = ""

    def problems(self) -> list[CallerError]:
        """Everything that is wrong with it, each with where it is; empty where nothing is."""
        checks: tuple[Callable[[], object], ...] = (
            self._check_name,
            self._check_size,
            lambda: check_flags(self.flags, self.language),
            self._entry,
            self._check_source,
            self._check_pattern,
            lambda: _line(self.author, "author", 200),
            lambda: _licence(self.licence),
            lambda: _line(self.description, "description", 500, needed=False),
        )
        found = []
        for check in checks:
            try:
                check()
            except CallerError as error:
                found.append(error)
        return found

    def checked(self) -> dict[str, Any]:
        """The columns of a version; raises the first of its problems."""
        for problem in self.problems():
            raise problem
        return {
            "source": self.source,
            "source_sha256": source_digest(self.source),
            "tokens_sha256": tokens_digest(self.source),
            "language": self.language,
            "flags": list(check_flags(self.flags, self.language)),
            "launch": self._entry(),
            "pattern": dict(self.pattern),
            "author": _line(self.author, "author", 200),
            "licence": _licence(self.licence),
        }

    def _check_name(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise RequestError(
                "A kernel's name has 2 to 80 of a-z, 0-9, '.', '_' and '-', a letter or digit first.", "name"
            )

    def _check_size(self) -> None:
        size = len(self.source.encode("utf-8", "replace"))
        if size > MAX_SOURCE_BYTES:
            raise TooLarge(f"A source has at most {MAX_SOURCE_BYTES >> 10} KiB; this has {size}.", "source")

    def _check_source(self) -> None:
        if not _storable(self.source):
            raise RequestError("The source must be text: no NUL, no lone surrogates.", "source")
        defined = "__global__" if self.language == "cuda" else "opatlas_run"
        if defined not in self.source:
            raise RequestError(f"The source must define {defined}: see docs/kernels.md.", "source")

    def _check_pattern(self) -> None:
        pattern = dict(self.pattern) if isinstance(self.pattern, Mapping) else self.pattern
        parse_pattern(pattern)
        if len(canonical_json(pattern)) > MAX_PATTERN_BYTES or not _storable(str(pattern)):
            raise RequestError(f"A pattern is text of at most {MAX_PATTERN_BYTES >> 10} KiB.", "pattern")

    def _entry(self) -> dict[str, Any] | None:
        """The launch template; which only device code has, and must."""
        if self.language != "cuda":
            if self.launch is not None:
                raise RequestError("Only a kernel in cuda has a launch template: leave it out.", "launch")
            return None
        launch = check_template(self.launch)
        if len(canonical_json(launch)) > MAX_PATTERN_BYTES or not _storable(str(launch)):
            raise RequestError(
                f"A launch template is text of at most {MAX_PATTERN_BYTES >> 10} KiB.", "launch"
            )
        return launch


def may_edit(user: User, kernel: Kernel) -> str:
    """Empty where this user may submit a kernel's next version, else why not: an edit takes the place of
    what is approved, so it is for whoever made the kernel or a version of it, and for administrators."""
    if kernel.created_by_id == user.pk or viewer_of(user).may(ADMINISTER, kernel.organisation_id):
        return ""
    if kernel.versions.filter(submitted_by=user.pk).exists():
        return ""
    owned = f"{kernel.name} is another user's kernel"
    return f"{owned}: only who made it, and administrators, edit it; take another name."


def submit(submission: Submission, *, user: User, organisation: Organisation) -> KernelVersion:
    """Keep a submission as a new version and queue its evaluation.

    A name that the organisation has already is an edit: the version before is superseded and, where it was
    approved, withdrawn at once.
    """
    if not user.is_active:
        raise KernelNotAllowed("This account is switched off.")
    columns = submission.checked()
    refuse_caught(columns["source_sha256"], columns["tokens_sha256"])
    _refuse_too_many(organisation)
    description = _line(submission.description, "description", 500, needed=False)
    example = _example(submission, organisation)
    with transaction.atomic():
        Kernel.objects.get_or_create(
            organisation=organisation, name=submission.name, defaults={"created_by": user}
        )
        kernel = Kernel.objects.select_for_update().get(organisation=organisation, name=submission.name)
        last = kernel.current
        if last is not None:
            if why_not := may_edit(user, kernel):
                raise KernelNotAllowed(why_not)
            _refuse_unchanged(last, columns)
            _supersede(last, user)
        if description and description != kernel.description:
            kernel.description = description
            kernel.save(update_fields=["description"])
        version = KernelVersion.objects.create(
            kernel=kernel,
            number=last.number + 1 if last else 1,
            submitted_by=user,
            example=example,
            **columns,
        )
        record(version, VersionState.SUBMITTED, who=user)
        plan(version)
    ring_for(version)
    return version


def _refuse_too_many(organisation: Organisation) -> None:
    waiting = KernelVersion.objects.filter(
        kernel__organisation=organisation, state__in=(VersionState.SUBMITTED, VersionState.BUILDING)
    ).count()
    if waiting >= conf().kernels_per_organisation:
        raise QuotaUsed(
            f"{organisation} has {waiting} kernels that wait for their evaluation, which is the quota: "
            "submit this one when one of them was evaluated."
        )


def _refuse_unchanged(last: KernelVersion, columns: Mapping[str, Any]) -> None:
    """The very same again is no edit, unless the last one failed or was refused: it may do better now."""
    names = ("source_sha256", "language", "flags", "launch", "pattern", "licence", "author")
    same = all(getattr(last, name) == columns[name] for name in names)
    if same and last.state in (VersionState.SUBMITTED, VersionState.BUILDING, VersionState.NOISY,
                               VersionState.AWAITING, VersionState.APPROVED):  # fmt: skip
        raise NotInThatState(f"Nothing was changed: {last.label} is this very kernel, and {last.state}.")


def _supersede(last: KernelVersion, user: User) -> None:
    was_approved = last.state == VersionState.APPROVED
    reason = f"edited by {user.get_username()}: version {last.number + 1} takes its place"
    if move(last, LIVE_STATES, VersionState.SUPERSEDED, who=user, reason=reason, withdrawn_at=timezone.now()):
        stop_evaluating(last, "a newer version took its place")
        if was_approved:
            withdraw_version(last, f"kernel {last.label} was {reason}")


def _example(submission: Submission, organisation: Organisation) -> OperatorRow | None:
    if not submission.example:
        return None
    key = submission.example
    row = OperatorRow.objects.filter(key=key).first() if len(key) <= 80 and _storable(key) else None
    if row is None:
        raise Unknown("There is no such operator in the catalogue: look it up once, then name it.", "example")
    refused = parse_pattern(submission.pattern).refuses(Operator.from_json(row.graph))
    if refused:
        raise RequestError(f"The example does not match the pattern: {refused}.", "example")
    return row


def _licence(text: str) -> str:
    text = _line(text, "licence", 60)
    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        raise RequestError(
            f"{text[:60]!r} is no SPDX licence: name one such as MIT, Apache-2.0 or BSD-3-Clause.", "licence"
        ) from None


def _line(text: str, where: str, most: int, *, needed: bool = True) -> str:
    line = " ".join(text.split()) if isinstance(text, str) else None
    if line is None or (needed and not line) or len(line) > most or not _storable(line):
        raise RequestError(f"The {where} is a text of {int(needed)} to {most} characters.", where)
    return line


def _storable(text: str) -> bool:
    """Whether every database can keep it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text
