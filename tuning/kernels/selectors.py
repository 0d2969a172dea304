"""What pages and the REST API read of kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from catalog.charging import Terms, charging, withheld_all
from catalog.line_diff import unified_diff
from catalog.models import SHARED, Best, Implementation, Method, Operator, Setting, Target
from catalog.viewing import Viewer, viewer_of
from tuning.kernels.binding import implementations_of
from tuning.kernels.deciding import decides
from tuning.kernels.models import Kernel, KernelDecision, KernelEvaluation, KernelVersion, VersionState
from tuning.kernels.source_digest import source_digest
from tuning.models import Trial

MOST_STANDINGS = 100


@dataclass(frozen=True)
class VersionStanding:
    """How an approved version does on one operator. ``rank`` 0 is the winner, None no best of its route."""

    operator: Operator
    target: Target
    setting: Setting
    status: str
    detail: str
    rank: int | None
    median_us: float | None
    ratio_to_default: float | None
    winner_label: str
    winner_route: str
    winner_us: float | None


@dataclass(frozen=True)
class Sight:
    """Which kernels somebody sees. Approved versions are common; the others, with their sources, are their
    organisation's and their author's own."""

    everything: bool = False  # of the host organisation, or decides on kernels
    organisations: frozenset[int] = frozenset()
    user_id: int | None = None

    def versions(self) -> Q:
        """Of KernelVersion."""
        if self.everything:
            return Q()
        own = Q(kernel__organisation__in=self.organisations)
        if self.user_id is not None:
            own |= Q(submitted_by=self.user_id)
        return own | Q(state=VersionState.APPROVED)

    def owns(self, version: KernelVersion) -> bool:
        """Whether it is seen for another reason than that it was approved."""
        own = version.kernel.organisation_id in self.organisations
        return self.everything or own or version.submitted_by_id == self.user_id


def source_withheld(version: KernelVersion, sight: Sight, payer: int | None) -> Terms | None:
    """Why its source, and what shows it, is not open to who looks: all that was made of it is withheld until
    it is paid, or would be where nothing was made yet. ``payer``: as :func:`catalog.charging.withheld` takes
    it."""
    if payer is None or sight.owns(version) or charging().may_withhold(payer) is None:
        return None
    made = (
        implementations_of(version)
        .filter(revoked_at=None, scope=SHARED)
        .defer("source", "schedule", "candidate")
    )
    return withheld_all(payer, list(made) or _to_be_made(version))


def without_withheld(
    sight: Sight, payer: int | None, versions: Iterable[KernelVersion]
) -> list[KernelVersion]:
    """These versions; of those that are withheld nothing that would do instead of paying."""
    found = list(versions)
    for version in found:
        if source_withheld(version, sight, payer) is not None:
            leave_out(version)
    return found


def leave_out(version: KernelVersion) -> None:
    """What would do instead of paying."""
    version.source, version.pattern, version.flags, version.launch = "", {}, [], None


def _to_be_made(version: KernelVersion) -> list[Implementation]:
    """What contests would make of it on the operators that it was evaluated on, for prices to be asked of."""
    rows = version.evaluations.order_by("pk").values_list("operator", flat=True)
    given = {"route": version.route, "method": Method.MANUAL, "scope": SHARED}
    return [Implementation(pk=-1 - at, operator_id=operator, **given) for at, operator in enumerate(rows)]


def sight_of(user: User | AnonymousUser, viewer: Viewer | None = None) -> Sight:
    """Of a person; ``viewer`` is the one that the request has already."""
    viewer = viewer or viewer_of(user)
    everything = viewer.sees_all or (user.is_authenticated and decides(user))
    return Sight(everything, frozenset(viewer.roles), user.pk)


def sight_of_key(viewer: Viewer, decider: bool) -> Sight:
    """Of an API key: its organisation's kernels; every one's where it decides or runs the service."""
    return Sight(viewer.sees_all or decider, frozenset(viewer.roles))


def kernels_seen(sight: Sight) -> QuerySet[Kernel]:
    """Kernels with at least one version that may be seen, the latest changed first."""
    seen = KernelVersion.objects.filter(sight.versions(), kernel=OuterRef("pk"))
    newest = seen.order_by("-number")
    step = KernelDecision.objects.filter(version__kernel=OuterRef("pk"))
    if not sight.everything:
        step = step.filter(version__in=KernelVersion.objects.filter(sight.versions()))
    step = step.order_by("-pk")
    return (
        Kernel.objects.filter(Exists(seen))
        .annotate(
            latest_state=Subquery(newest.values("state")[:1]),
            latest_number=Subquery(newest.values("number")[:1]),
            latest_author=Subquery(newest.values("author")[:1]),
            latest_licence=Subquery(newest.values("licence")[:1]),
            latest_reason=Subquery(newest.values("state_reason")[:1]),
            latest_at=Subquery(step.values("created_at")[:1]),
        )
        .select_related("organisation", "created_by")
        .order_by("-latest_at", "-pk")
    )


def versions_seen(sight: Sight) -> QuerySet[KernelVersion]:
    """Versions that may be seen, the newest first."""
    related = ("kernel__organisation", "example", "submitted_by", "decided_by")
    return KernelVersion.objects.filter(sight.versions()).select_related(*related).order_by("-pk")


def evaluations_of(version: KernelVersion) -> QuerySet[KernelEvaluation]:
    """A version's evidence, operator by operator."""
    return version.evaluations.select_related("operator", "target", "setting").order_by("pk")


def history_of(kernel: Kernel, sight: Sight) -> QuerySet[KernelDecision]:
    """Every step of every version that may be seen, the latest first."""
    seen = KernelVersion.objects.filter(sight.versions(), kernel=kernel)
    rows = KernelDecision.objects.filter(version__in=seen)
    return rows.select_related("version__kernel", "user").order_by("-pk")


def source_diff(version: KernelVersion, sight: Sight) -> str:
    """Unified diff of the source against the version before; empty for the first, where it is the same, and
    where the version before may not be seen."""
    earlier = KernelVersion.objects.filter(kernel=version.kernel_id, number=version.number - 1)
    before = earlier.filter(sight.versions()).select_related("kernel").first()
    if before is None:
        return ""
    lines = unified_diff(
        before.source.splitlines(),
        version.source.splitlines(),
        f"{before.label}.{_suffix(before)}",
        f"{version.label}.{_suffix(version)}",
    )
    return "\n".join(lines)


def version_standings(version: KernelVersion) -> list[VersionStanding]:
    """How a version does in the contests that it entered, where it wins first."""
    mine = set(implementations_of(version).values_list("pk", flat=True))
    trials = Trial.objects.filter(route=version.route, label=version.label, exploration__scope=SHARED)
    trials = trials.filter(Q(implementation__in=mine) | Q(implementation=None))
    latest: dict[tuple[int, int, int], Trial] = {}
    for trial in trials.select_related(
        "exploration__operator", "exploration__target", "exploration__setting"
    ).order_by("-pk")[: MOST_STANDINGS * 5]:
        if trial.implementation_id is None and not _is_of(version, trial):
            continue
        row = trial.exploration
        latest.setdefault((row.operator_id, row.target_id, row.setting_id), trial)
    found = [_standing(trial, mine) for trial in list(latest.values())[:MOST_STANDINGS]]
    return sorted(found, key=lambda one: (one.rank is None, one.rank or 0, -(one.ratio_to_default or 0.0)))


def _is_of(version: KernelVersion, trial: Trial) -> bool:
    """Whether a try that published nothing was of this version: another organisation may have a kernel of
    its name."""
    given = trial.candidate
    same = source_digest(str(given.get("source", ""))) == version.source_sha256
    return same and given.get("kernel_version", version.pk) == version.pk


def waiting_for(user: User | AnonymousUser) -> int:
    """How many versions wait for this user's decision."""
    return undecided_for(user) if decides(user) else 0


def undecided_for(user: User | AnonymousUser) -> int:
    """The same of who is known to decide: one statement."""
    own = KernelVersion.objects.filter(kernel=OuterRef("kernel"), submitted_by=user.pk)
    return KernelVersion.objects.filter(~Exists(own), state=VersionState.AWAITING).count()


def _standing(trial: Trial, mine: set[int]) -> VersionStanding:
    row = trial.exploration
    bests = {best.rank: best for best in Best.objects.filter(**row.same_key)}
    own = next((best for best in bests.values() if best.implementation_id in mine), None)
    winner = bests.get(0)
    return VersionStanding(
        operator=row.operator,
        target=row.target,
        setting=row.setting,
        status=trial.status,
        detail=trial.detail,
        rank=own.rank if own else None,
        median_us=own.median_us if own else trial.median_us,
        ratio_to_default=own.ratio_to_default if own else trial.ratio_to_default,
        winner_label=winner.label if winner else "",
        winner_route=winner.route if winner else "",
        winner_us=winner.median_us if winner else None,
    )


def _suffix(version: KernelVersion) -> str:
    return "cc" if version.language == "c++" else "c"
