"""The lookup: hits with their evidence, misses recorded before the answer leaves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import IntegrityError
from django.utils import timezone

from catalog import models
from catalog.best.evidence import evidence_of
from catalog.best.served import Accepts, Hit, find_bests, operators_with_bests, scopes_of
from catalog.best.stages import is_reached
from catalog.best.vouching import find_damaged
from catalog.charging import Payer, SpendLimit, Terms, charging
from catalog.conf import MAX_WAIT_S, WAIT_POLL_S, conf
from catalog.errors import NotFree, RequestError, StoreError
from catalog.lookup.misses import QUEUED, REFUSED, MissAnswer, Wanted, Where, record_misses, states_now
from catalog.lookup.neighbours import NeighbourHit, find_neighbours
from catalog.lookup.repeating import Answered, NamedRequest, keep_answer, kept_answer
from catalog.lookup.results import Result
from catalog.lookup.serving import serve
from catalog.models import AnswerStage, MissState
from catalog.signals import stage_awaited
from catalog.usage.succession import asked_next
from opatlas import identity
from opatlas.errors import InvalidOperator

logger = logging.getLogger(__name__)

MANIFEST, RELATED, NEIGHBOURS, NEXT = "manifest", "related", "neighbours", "next"
NEIGHBOUR_DEFAULTS, EVIDENCE = "neighbour_defaults", "evidence"
INCLUDABLE = (MANIFEST, RELATED, NEIGHBOURS, NEIGHBOUR_DEFAULTS, NEXT, EVIDENCE)
"""Optional parts of an answer: manifests of all hits; answers for related operators; hits of the nearest
target that differs in sizes alone, if no worker explores for this one (of all its cores, if all own cores are
asked for: older clients would refuse these); hits that jobs asked next; why each hit is trusted."""

PAYMENT_REQUIRED = "payment_required"
"""The state of an item whose best is withheld until it is paid."""

Graphs = Mapping[str, identity.Operator | None]

_UNLOADABLE = "Implementations exist, but none of the kinds and versions that the request accepts."
_GONE = (
    "What this request was answered before is not served any more: it was revoked, or its artifact is "
    "damaged. Ask again under another Idempotency-Key."
)
_waiters = threading.Semaphore(conf().max_waiters)


class AskedOperator(NamedTuple):
    """One operator of a lookup: by key, with its graph if the caller has it. ``unread``: a graph that came
    with its key and was not parsed, since that takes a millisecond and a known key needs none."""

    key: str
    calls: float = 1.0
    graph: identity.Operator | None = None
    unread: Callable[[], identity.Operator] | None = None

    def read_graph(self) -> identity.Operator | None:
        """None if there is none; raises a CallerError if it is invalid, or not this key's."""
        return self.unread() if self.graph is None and self.unread is not None else self.graph


@dataclass(frozen=True)
class LookupRequest:
    """A checked request. ``organisation`` decides which private entries are seen."""

    target: models.Target
    setting: models.Setting
    operators: Sequence[AskedOperator]
    related: Sequence[AskedOperator] = ()
    organisation: models.Organisation | None = None
    api_key: models.ApiKey | None = None
    job: str = ""
    accepts: Accepts | None = None
    wait_s: float = 0.0
    wait_for: AnswerStage = AnswerStage.FIRST
    include: frozenset[str] = frozenset()  # some of INCLUDABLE
    known: frozenset[str] = frozenset()  # artifacts whose manifests the caller has
    spend_limit: SpendLimit | None = None  # the job's
    free_only: bool = False  # what costs something is refused
    named: NamedRequest | None = None  # so that sending it again charges nothing again


@dataclass(frozen=True)
class LookupAnswer:
    target: models.Target
    setting: models.Setting
    served: bool  # a live worker serves the target
    results: tuple[Result, ...]  # one for each operator that was asked for, in its order
    related: tuple[Result, ...] = ()  # with ``include``: what is known of the related ones, free ones only
    next: tuple[Result, ...] = ()  # with ``include``: free hits that jobs asked next, the likeliest first
    without_best: tuple[str, ...] = ()  # of what jobs asked next, what nothing was found for
    artifacts: tuple[models.Artifact, ...] = ()  # with ``include``: of all that hit, but those known
    signers: tuple[models.Signer, ...] = ()  # of what hit, those known too
    unchanged: tuple[str, ...] | None = None  # of the artifacts that hit, those known; None: none is
    evidence: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # with ``include``, of what hit

    @property
    def hits(self) -> int:
        return sum(result.status == "hit" for result in self.results)


def is_served(target: models.Target) -> bool:
    """Whether a live worker explores for this target now."""
    return target.served_until is not None and target.served_until > timezone.now()


def lookup(request: LookupRequest) -> LookupAnswer:
    """Answer a batch.

    Hits come with their evidence. An unknown operator is committed as a miss before this returns, and
    answered with its state; a key whose graph was never seen is answered ``need_graph``. With ``wait_s`` the
    answer waits (bounded, in no transaction) until exploring has reached ``wait_for`` for every operator, or
    is over. A best that is withheld until it is paid leaves its item empty: no slower one replaces it. A
    repeated charged request (``named``) gets its first answer. Raises :class:`~catalog.errors.NotFree` if
    something costs and ``free_only`` was asked for.
    """
    results, related = _answered_before(request) or _answer(request)
    coming, to_come = _coming(request) if NEXT in request.include else ((), ())
    along = (*results, *related, *coming)
    artifacts, signers = _manifests(request, along) if MANIFEST in request.include else ((), ())
    return LookupAnswer(
        target=request.target,
        setting=request.setting,
        served=is_served(request.target),
        results=tuple(results),
        related=tuple(related),
        next=coming,
        without_best=to_come,
        artifacts=artifacts,
        signers=signers,
        unchanged=_unchanged(request, along) if request.known else None,
        evidence=_evidence(request, along),
    )


def _answered_before(request: LookupRequest) -> Answered | None:
    if request.named is None or request.organisation is None:
        return None
    kept = kept_answer(request.organisation, request.named)
    return kept and (_without_gone(request, kept[0]), _without_gone(request, kept[1]))


def _without_gone(request: LookupRequest, kept: Sequence[Result]) -> list[Result]:
    """The earlier answer without hits that may not be served any more: a paid hit may have been revoked
    since, and a free one may be withheld again."""
    hits = {hit.implementation_id: hit for hit in _served(kept)}
    if not hits:
        return list(kept)
    rows = models.Implementation.objects.filter(pk__in=list(hits), revoked_at=None)
    there = {row.pk: row for row in rows.defer("source", "schedule", "candidate")}
    damaged = _damaged(request, hits.values())
    terms = charging().terms_of(request.organisation.pk if request.organisation else 0, list(there.values()))

    def now(one: Result) -> Result:
        if one.status != "hit" or one.best is None:
            return one
        number = one.best.implementation_id
        if number not in there or one.best.artifact_sha256 in damaged:
            return Result(one.key, "miss", state=MissState.EXPLORED, reason=_GONE)
        asked = terms.get(number)
        return _result(one.key, one.best, None, asked) if asked and asked.withheld else one

    return [now(one) for one in kept]


def _answer(request: LookupRequest) -> Answered:
    asked = _merged(request.operators)
    found, related = _known(request, asked)
    if request.free_only:  # before anything is written down, most often
        _check_free(request, _charged(request, found))
    misses: dict[str, MissAnswer] = {}
    to_come: dict[str, MissAnswer] = {}
    if len(found) < len(asked) or len(related) < len(request.related):
        missing = {key: item for key, item in asked.items() if key not in found}
        misses, to_come = _miss(request, missing, related)
        late = [key for key, miss in (misses | to_come).items() if miss.state == MissState.EXPLORED]
        for key, hit in _find(request, late).items():  # published while we asked
            (found if key in asked else related)[key] = hit
            to_come.pop(key, None)
    if request.wait_s > 0:
        _wait(request, found, misses)
    near = _neighbours(request, misses | to_come, found)
    found |= {key: one.hit for key, one in near.items() if key in asked}
    charged = _charged(request, related)

    def answered(terms: Mapping[str, Terms]) -> Answered:
        results = {
            key: _result(key, found.get(key), misses.get(key), terms.get(key), near.get(key)) for key in asked
        }
        told = {key: _result(key, None, miss, None, near.get(key)) for key, miss in to_come.items()} | results
        others = [_related_result(item.key, related, told, charged) for item in request.related]
        return [results[item.key] for item in request.operators], others if RELATED in request.include else []

    try:
        return answered(_write_down(request, asked, found, misses, answered))
    except IntegrityError:
        if (before := _answered_before(request)) is None:
            raise
        return before  # the same request at once: that one was charged


def _known(
    request: LookupRequest, asked: Mapping[str, AskedOperator]
) -> tuple[dict[str, Hit], dict[str, Hit]]:
    """Bests of the operators asked for and of the related ones, in one statement, which costs as much as ten
    operators do. Related ones are not counted as uses, so charged ones are left out (``need_lookup``)."""
    along = [item.key for item in request.related] if RELATED in request.include else []
    found = _find(request, [*asked, *along])
    return (
        {key: hit for key, hit in found.items() if key in asked},
        {key: hit for key, hit in found.items() if key not in asked},
    )


def _coming(request: LookupRequest) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """Hits that this organisation's jobs asked next, and the keys without one. As with related ones nothing
    is counted or charged."""
    if request.organisation is None:
        return (), ()
    asked, along = ([item.key for item in some] for some in (request.operators, request.related))
    keys = keys_to_come(request.organisation.pk, asked, along)
    found = _find(request, keys)
    charged = _charged(request, found)
    hits = tuple(Result(key, "hit", found[key]) for key in keys if key in found and key not in charged)
    return hits, tuple(key for key in keys if key not in found)


def keys_to_come(organisation_id: int, asked: Sequence[str], related: Sequence[str]) -> list[str]:
    """What this organisation's jobs asked next, the likeliest first, without what is named already (one
    statement)."""
    named = set(related)
    likely = asked_next(organisation_id, list(dict.fromkeys(asked)))
    return [key for key in likely if key not in named]


def _neighbours(
    request: LookupRequest, misses: Mapping[str, MissAnswer], found: Collection[str]
) -> dict[str, NeighbourHit]:
    """For callers that ask for them and have no worker: free hits for what is still to be explored."""
    if NEIGHBOURS not in request.include or is_served(request.target):
        return {}
    open_ones = [key for key, miss in misses.items() if key not in found and miss.state in _TO_EXPLORE]
    scopes, defaults = scopes_of(request.organisation), NEIGHBOUR_DEFAULTS in request.include
    near = find_neighbours(open_ones, request.target, request.setting, scopes, request.accepts, defaults)
    damaged = _damaged(request, [one.hit for one in near.values()])
    near = {key: one for key, one in near.items() if one.hit.artifact_sha256 not in damaged}
    charged = _charged(request, {key: one.hit for key, one in near.items()})
    return {key: one for key, one in near.items() if key not in charged}


def _charged(request: LookupRequest, related: Mapping[str, Hit]) -> set[str]:
    """Those of these that cost something; asked of all at once first, since usually none does."""
    organisation, decider = request.organisation.pk if request.organisation else 0, charging()
    if not related or not decider.concerns(organisation, [(hit, 1.0) for hit in related.values()]):
        return set()
    return {key for key, hit in related.items() if decider.concerns(organisation, [(hit, 1.0)])}


def _check_free(request: LookupRequest, charged: Collection[str]) -> None:
    if request.free_only and charged:
        number = next(n for n, item in enumerate(request.operators) if item.key in charged)
        raise NotFree(
            "This operator costs something, and free answers alone are wanted: nothing was charged. Ask "
            "for it without free_only.",
            where=f"operators[{number}]",
        )


def _related_result(
    key: str, related: Mapping[str, Hit], results: Mapping[str, Result], charged: Collection[str]
) -> Result:
    if key in results:
        return Result(key, "need_lookup") if results[key].terms else results[key]
    hit = related.get(key)
    if hit is None:
        return Result(key, "need_graph")
    return Result(key, "need_lookup") if key in charged else Result(key, "hit", hit)


def _manifests(
    request: LookupRequest, results: Sequence[Result]
) -> tuple[tuple[models.Artifact, ...], tuple[models.Signer, ...]]:
    """Manifests of everything that is served, in two statements."""
    hits = {hit.artifact_sha256 for hit in _served(results)}
    rows = models.Artifact.objects.filter(sha256__in=hits)
    signers = models.Signer.objects.filter(sha256__in=rows.values("signer"))
    return tuple(rows.exclude(sha256__in=request.known)), tuple(signers)


def _unchanged(request: LookupRequest, results: Sequence[Result]) -> tuple[str, ...]:
    return tuple(sorted({hit.artifact_sha256 for hit in _served(results)} & request.known))


def _evidence(request: LookupRequest, results: Sequence[Result]) -> Mapping[int, Mapping[str, Any]]:
    if EVIDENCE not in request.include:
        return {}
    return evidence_of(hit.implementation_id for hit in _served(results))


def _served(results: Sequence[Result]) -> list[Hit]:
    return [result.best for result in results if result.status == "hit" and result.best]


def _merged(operators: Sequence[AskedOperator]) -> dict[str, AskedOperator]:
    """By key; an operator that is named twice is asked for once, with the sum of its calls."""
    merged: dict[str, AskedOperator] = {}
    for item in operators:
        seen = merged.get(item.key)
        merged[item.key] = (
            item
            if seen is None
            else seen._replace(
                calls=seen.calls + item.calls,
                graph=seen.graph or item.graph,
                unread=seen.unread or item.unread,
            )
        )
    return merged


def _find(request: LookupRequest, keys: Sequence[str]) -> dict[str, Hit]:
    """The best of each. If manifests are sent along, only whole artifacts count: the next best replaces a
    damaged one."""
    scopes, accepts = scopes_of(request.organisation), request.accepts
    found = find_bests(keys, request.target, request.setting, scopes, accepts)
    while damaged := _damaged(request, found.values()):
        again = [key for key, hit in found.items() if hit.artifact_sha256 in damaged]
        next_ones = find_bests(again, request.target, request.setting, scopes, accepts)
        found = {key: hit for key, hit in found.items() if key not in again} | next_ones
    return found


def _damaged(request: LookupRequest, hits: Iterable[Hit]) -> set[str]:
    if MANIFEST not in request.include:
        return set()  # these are read when they are fetched
    try:
        return find_damaged({hit.artifact_sha256 for hit in hits})
    except StoreError as error:
        logger.error("%s", error)  # it says nothing of any of them
        return set()


def _miss(
    request: LookupRequest, missing: dict[str, AskedOperator], known: Collection[str]
) -> tuple[dict[str, MissAnswer], dict[str, MissAnswer]]:
    """Record unknown operators, and related ones unless they are ``known``; returns the states of both. A key
    without row and graph is left out."""
    related = {
        key: item for key, item in _merged(request.related).items() if key not in missing and key not in known
    }
    ids = dict(models.Operator.objects.filter(key__in=[*missing, *related]).values_list("key", "id"))
    scopes = scopes_of(request.organisation)
    have_bests = operators_with_bests(ids.values(), request.target, request.setting, scopes) if ids else set()
    unloadable = {
        key: MissAnswer("explored", _UNLOADABLE, ids[key])
        for key in (*missing, *related)
        if ids.get(key) in have_bests and request.accepts is not None
    }
    graphs = {key: item.read_graph() for key, item in (missing | related).items() if key not in ids}
    barred = _barred(request, graphs)
    wanted = [
        Wanted(key, item.calls, ids.get(key), graphs.get(key), related=item.key in related)
        for key, item in (missing | related).items()
        if key not in unloadable
        and key not in barred
        and (key in ids or graphs[key] is not None)
        and not (key in related and ids.get(key) in have_bests)
    ]
    waited_until = timezone.now() + timedelta(seconds=request.wait_s) if request.wait_s > 0 else None
    where = Where(
        target=request.target,
        setting=request.setting,
        api_key=request.api_key,
        organisation=request.organisation,
        job=request.job,
        waited_until=waited_until,
    )
    answers = record_misses(wanted, where)
    answers = unloadable | barred | answers
    asked_for = {key: answer for key, answer in answers.items() if key in missing}
    return asked_for, {key: answer for key, answer in answers.items() if key in related}


def _barred(request: LookupRequest, graphs: Graphs) -> dict[str, MissAnswer]:
    """New operators that nobody could ever measure become no miss; asked for alone they are refused."""
    found: dict[str, MissAnswer] = {}
    for key, graph in graphs.items():
        try:
            if graph is not None:
                identity.check_measurable(graph)
        except InvalidOperator as error:
            found[key] = MissAnswer(MissState.DISCARDED, str(error))
    if found and len(request.operators) == 1 and not request.related:
        raise RequestError(next(iter(found.values())).reason, where="operators[0].graph")
    return found


def _wait(request: LookupRequest, found: dict[str, Hit], misses: dict[str, MissAnswer]) -> None:
    """Poll until exploring has come far enough for all of these, or the time is up; updates both. Few
    requests may wait at a time: a process whose every thread waits could answer nobody."""
    keys = [key for key in (*found, *misses) if _goes_on(request, found.get(key), misses.get(key), _ASKED)]
    if keys:
        with may_wait() as may:
            if may:
                _poll(request, found, misses, keys)


@contextmanager
def may_wait() -> Iterator[bool]:
    """Whether one more request of this process may wait for a worker, for the length of a ``with`` block."""
    may = _waiters.acquire(blocking=False)
    try:
        yield may
    finally:
        if may:
            _waiters.release()


def _poll(
    request: LookupRequest, found: dict[str, Hit], misses: dict[str, MissAnswer], keys: list[str]
) -> None:
    if further := [found[key].operator_id for key in keys if key in found]:
        place = {"target": request.target.pk, "setting": request.setting.pk}
        stage_awaited.send(sender=models.Best, operators=further, **place)
    deadline = time.monotonic() + min(request.wait_s, MAX_WAIT_S)
    while keys and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(WAIT_POLL_S, left))
        # Misses before bests: of what ends between the two, the best is found and no failure told.
        operators = {key: misses[key].operator_id for key in keys if key in misses}
        misses |= states_now(operators, request.target, request.setting)
        found |= _find(request, keys)
        keys = [key for key in keys if _goes_on(request, found.get(key), misses.get(key), _STILL_TO_COME)]
    request.target.refresh_from_db(fields=["served_until"])  # heartbeats moved it on meanwhile


_TO_EXPLORE = (*QUEUED, REFUSED)
_ASKED = (MissState.WAITING, MissState.PROMOTED)
_STILL_TO_COME = (*_ASKED, MissState.EXPLORED)  # so far without anything that the request accepts


def _goes_on(
    request: LookupRequest, hit: Hit | None, miss: MissAnswer | None, states: Collection[str]
) -> bool:
    """Whether exploring has not reached the wanted stage, and still may."""
    if hit is not None:
        return not (hit.final or is_reached(hit.stage, request.wait_for))
    return miss is not None and miss.state in states


def _result(
    key: str,
    hit: Hit | None,
    miss: MissAnswer | None,
    terms: Terms | None,
    neighbour: NeighbourHit | None = None,
) -> Result:
    hit = neighbour.hit if neighbour is not None else hit
    if hit is not None and terms is not None and terms.withheld:
        return Result(key, "miss", hit, PAYMENT_REQUIRED, terms.sentence, terms)
    if hit is not None:
        return Result(key, "hit", best=hit, terms=terms, neighbour=neighbour)
    if miss is not None:
        nothing_fits = miss.state == MissState.EXPLORED and not miss.reason
        return Result(key, "miss", state=miss.state, reason=_UNLOADABLE if nothing_fits else miss.reason)
    return Result(key, "need_graph")


def _write_down(
    request: LookupRequest,
    asked: dict[str, AskedOperator],
    found: dict[str, Hit],
    misses: dict[str, MissAnswer],
    answered: Callable[[Mapping[str, Terms]], Answered],
) -> Mapping[str, Terms]:
    organisation, named = request.organisation, request.named
    if organisation is None:
        return {}
    missed = [
        (miss.operator_id, asked[key].calls)
        for key, miss in misses.items()
        if key not in found and miss.operator_id is not None
    ]
    # In the order of the request: a database gives its rows in any.
    hits = [(found[key], item.calls) for key, item in asked.items() if key in found]
    rows = {key: miss.operator_id for key, miss in misses.items()}
    rows |= {key: hit.operator_id for key, hit in found.items()}
    in_order = [number for key in asked if (number := rows.get(key))]

    def keep(terms: Mapping[str, Terms]) -> None:
        _check_free(request, terms)  # what was published, or got its price, since we looked
        if named is not None:
            keep_answer(organisation, named, answered(terms))

    key = request.api_key.prefix if request.api_key else ""
    payer = Payer(organisation.pk, request.job, request.spend_limit, key)
    return serve(payer, hits, missed, in_order, keep)
