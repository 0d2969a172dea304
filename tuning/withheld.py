"""What a try shows of something that is withheld until it is paid: how it ended and its times, and neither
the candidate nor the words of a compiler, which quote it. Whatever shows tries asks here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from catalog.charging import charging
from catalog.models import Implementation, Method
from catalog.viewing import Viewer
from tuning.failures.reasons import reason_of
from tuning.kernels.models import KernelVersion
from tuning.kernels.selectors import Sight, source_withheld
from tuning.kernels.source_digest import source_digest
from tuning.models import Exploration, Trial

_BATCH = 500
_Place = tuple[int, int, int, str, str]


def shown_trials(viewer: Viewer, trials: Iterable[Trial]) -> list[Trial]:
    """These tries as they may be shown to who looks. Without price rules that withhold no statement, with
    them a constant number."""
    found = list(trials)
    payer = viewer.payer
    if payer is None or charging().may_withhold(payer) is None:
        return found
    places = _withheld_places(payer, found)
    kernels = _withheld_kernels(viewer, found)
    for trial in found:
        if _place(trial.exploration, trial.route) in places or trial.pk in kernels:
            trial.candidate, trial.log_tail = {}, ""
            trial.detail = reason_of(trial.detail)  # as a failure's cause has it
    return found


def shown_one_by_one(viewer: Viewer, trials: Iterable[Trial]) -> Iterator[Trial]:
    """The same of many, some at a time: for exports."""
    every = iter(trials)
    while some := list(islice(every, _BATCH)):
        yield from shown_trials(viewer, some)


def _place(row: Exploration | Implementation, route: str) -> _Place:
    return row.operator_id, row.target_id, row.setting_id, row.scope, route


def _withheld_places(payer: int, trials: Sequence[Trial]) -> set[_Place]:
    """Where, and by which route, something is withheld of what these were tried for: the tries that led to it
    are made alike."""
    asked = {_place(row.exploration, row.route) for row in trials}
    made = Implementation.objects.filter(
        operator__in={row.exploration.operator_id for row in trials}, route__in={row.route for row in trials}
    ).defer("source", "schedule", "candidate")
    rows = [row for row in made if _place(row, row.route) in asked]
    terms = charging().terms_of(payer, rows)
    return {_place(row, row.route) for row in rows if row.pk in terms and terms[row.pk].withheld}


def _withheld_kernels(viewer: Viewer, trials: Sequence[Trial]) -> set[int]:
    """Tries of hand-written kernels, by number, whose source is withheld: wherever they were tried."""
    manual = [row.pk for row in trials if row.method == Method.MANUAL]
    if not manual:
        return set()
    tried = Trial.objects.filter(pk__in=manual).values_list("pk", "candidate")
    sources = {pk: source_digest(str(given["source"])) for pk, given in tried if "source" in given}
    versions = KernelVersion.objects.filter(source_sha256__in=set(sources.values())).select_related("kernel")
    sight = Sight(viewer.sees_all, frozenset(viewer.roles))
    known = list(versions)
    # Two may have submitted the same source: what is open of one is open.
    open_ones = {one.source_sha256 for one in known if source_withheld(one, sight, viewer.payer) is None}
    held = {one.source_sha256 for one in known} - open_ones
    return {pk for pk, source in sources.items() if source in held}
