"""Between rows and the pure route: versions as kernels to contest, and what was made of them."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet

from catalog.best.withdrawing import withdraw
from catalog.models import Implementation
from catalog.models import Operator as OperatorRow
from catalog.registry import digest_of
from opatlas.identity import Operator
from tuning.kernels.models import KernelVersion, VersionState
from tuning.kernels.source_digest import source_digest
from tuning.routes.base import Candidate
from tuning.routes.manual.matching import parse_pattern
from tuning.routes.manual.submitted import SubmittedKernel, SubmittedRoute


def submitted_kernel(version: KernelVersion) -> SubmittedKernel:
    """The pure form of a version."""
    return SubmittedKernel(
        pk=version.pk,
        name=version.kernel.name,
        version=version.number,
        language=version.language,
        source=version.source,
        flags=tuple(version.flags),
        pattern=parse_pattern(version.pattern),
        launch=version.launch,
    )


def approved_kernels(operator: OperatorRow) -> Iterator[SubmittedKernel]:
    """Every approved kernel that matches this operator: of all organisations, for all scopes. Approving a
    kernel shares it; its licence is stated."""
    parsed = Operator.from_json(operator.graph)
    versions = KernelVersion.objects.filter(state=VersionState.APPROVED).order_by("pk")
    for version in versions.select_related("kernel"):
        kernel = submitted_kernel(version)
        if not kernel.pattern.refuses(parsed):
            yield kernel


def bind_approved(route: SubmittedRoute, operator: OperatorRow) -> SubmittedRoute:
    """The route, with every approved kernel of its own that matches."""
    return route.with_kernels(approved_kernels(operator))


def why_not_publish(candidate: Candidate) -> str:
    """Empty where a candidate's version is approved at this moment, else why nothing of it may be served.

    Asked inside the publishing transaction: the version's row stays locked until that ends, so that a
    revocation comes before it or withdraws what it published.
    """
    number = _number_in(candidate)
    version = KernelVersion.objects.select_for_update(of=("self",)).filter(pk=number or 0).first()
    if version is None:
        return "its kernel is not known any more"
    if source_digest(str(candidate.parameters["source"])) != version.source_sha256:
        return "its source is not the one that was approved"
    return "" if version.state == VersionState.APPROVED else f"its kernel is {version.state}"


def version_of(candidate: Candidate) -> KernelVersion | None:
    """The version whose candidate this is, if its source is still the very one."""
    source = source_digest(str(candidate.parameters.get("source", "")))
    rows = KernelVersion.objects.filter(pk=_number_in(candidate) or 0, source_sha256=source)
    return rows.select_related("kernel__organisation").first()


def number_of_version(candidate: Candidate) -> int | None:
    """The same by its number, for what is published of it."""
    version = version_of(candidate)
    return None if version is None else version.pk


def implementations_of(version: KernelVersion) -> QuerySet[Implementation]:
    """What was made of a version, for whatever operator."""
    return Implementation.objects.filter(kernel_version=version.pk)


def withdraw_version(version: KernelVersion, reason: str) -> int:
    """Take everything that was made of a version out of service; the bests fall back."""
    return withdraw(implementations_of(version), reason)


def withdraw_unapproved() -> int:
    """Take out of service what is served of versions that are not approved; gives how many that were.

    Deciding withdraws at once. This finds what it could not: an earlier release lost sight of what a kernel
    served once its organisation was renamed.
    """
    ended = KernelVersion.objects.exclude(state=VersionState.APPROVED)
    left = Implementation.objects.filter(kernel_version__in=ended.values("pk"), revoked_at=None)
    done = 0
    for version in ended.filter(pk__in=left.values("kernel_version")).select_related("kernel"):
        done += withdraw_version(version, f"kernel {version.label} is {version.state}")
    return done


def _number_in(candidate: Candidate) -> int | None:
    """The number of the version that a candidate says it is. One of before candidates had it names its
    organisation, which may have another name by now: what was published of it knows its number."""
    given = candidate.parameters.get("kernel_version")
    if given is None:
        made = Implementation.objects.filter(
            route=candidate.route,
            candidate_sha256=digest_of(candidate.parameters),
            kernel_version__isnull=False,
        )
        return made.values_list("kernel_version", flat=True).first()
    return given if isinstance(given, int) else None
