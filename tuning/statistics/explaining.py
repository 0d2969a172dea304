"""Why a lookup answers as it does: what becomes of a miss, and which known entry is nearest to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

from catalog import models
from catalog.best.served import Accepts, Hit, find_bests, scopes_of
from catalog.charging import charging
from catalog.lookup.lookups import is_served
from catalog.lookup.neighbours import find_neighbours
from catalog.models import Best, Miss, MissState
from catalog.registry import read_graph
from opatlas import identity
from tuning.models import Exploration
from tuning.queue.rates import rates
from tuning.routes.likeness import distance, features_of
from tuning.statistics.eta import Eta, eta

LOOKED_AT = 300
"""Entries of the same op types: the nearest is looked for among the latest of them."""
NEIGHBOURS, MOST_DIFFERENCES = 3, 8
COMPARED = 30
"""Of the nearest in size: field by field."""
GIVEN_MEANWHILE = ("unknown", "queued", "postponed")
"""States in which another target's entry is given."""
NOBODY_ASKED = "Nobody has asked for it here yet: a lookup puts it into the queue."


@dataclass(frozen=True)
class Difference:
    """A field of the key in which a known entry differs from what was asked for."""

    field: Annotated[str, "`operator.inputs[0].shape`, `target.cores`, `setting.threads`, `needs.torch`."]
    asked: str
    known: str


@dataclass(frozen=True)
class NearEntry:
    """An entry that is known, and differs in little."""

    operator: str
    summary: str
    target: str
    setting: str
    median_us: float
    ratio_to_default: float
    differs: Sequence[Difference]


@dataclass(frozen=True)
class Explanation:
    """Why a lookup of one operator answers what it does."""

    key: str
    summary: str
    state: Annotated[
        str,
        "hit; or why there is none: not_loadable, withheld, queued, exploring, contested (a first result is "
        "there), discarded, postponed, unsupported, failed, unknown (never asked for here), never_seen (the "
        "service does not know the operator's graph).",
    ]
    sentence: str
    stage: str = ""
    expected_s: Annotated[float | None, "Until exploring has ended; null where nothing can be said."] = None
    wait_s: Annotated[float | None, "Of that, in the queue."] = None
    nearest: Sequence[NearEntry] = ()
    position: Annotated[int | None, "In the queue, 1 being next; null where it is in none that moves."] = None


@dataclass(frozen=True)
class ExplainRequest:
    """What was asked for. ``operator`` is None where only a key is known that the service has never seen."""

    key: str
    operator: identity.Operator | None
    target: models.Target
    setting: models.Setting
    organisation: models.Organisation
    accepts: Accepts | None = None

    @property
    def scopes(self) -> tuple[str, ...]:
        return scopes_of(self.organisation)


def explain(asked: ExplainRequest) -> Explanation:
    """Read only: nothing is recorded, and no miss is made."""
    summary = identity.describe(asked.operator).summary if asked.operator else ""
    if asked.operator is None:
        sentence = "The service has never seen this operator: send its graph with the lookup, once."
        return Explanation(asked.key, summary, "never_seen", sentence)
    hit = find_bests([asked.key], asked.target, asked.setting, asked.scopes, asked.accepts).get(asked.key)
    row = _exploration(asked)
    left = eta(row, rates()) if row is not None else None
    if hit is not None:
        return _of_hit(asked, summary, hit, left)
    if any_best := find_bests([asked.key], asked.target, asked.setting, asked.scopes).get(asked.key):
        return Explanation(
            asked.key,
            summary,
            "not_loadable",
            "Implementations exist, but none of the kinds and versions that the request accepts.",
            any_best.stage,
            nearest=[_near(any_best, asked, summary, _lacking(any_best, asked.accepts))],
        )
    state, sentence = _of_miss(asked, row)
    if left is not None:
        sentence = f"{sentence} {left.how}"
    if state in GIVEN_MEANWHILE and (meanwhile := _meanwhile(asked)):
        sentence = f"{sentence} {meanwhile}"
    seconds, wait_s, position = (left.seconds, left.wait_s, left.position) if left else (None, None, None)
    nearest = [*_elsewhere(asked), *_alike(asked)][:NEIGHBOURS]
    return Explanation(asked.key, summary, state, sentence, "", seconds, wait_s, nearest, position)


def _of_hit(asked: ExplainRequest, summary: str, hit: Hit, left: Eta | None) -> Explanation:
    terms = (
        charging()
        .terms_of(asked.organisation.pk, [models.Implementation.objects.get(pk=hit.implementation_id)])
        .get(hit.implementation_id)
    )
    if terms is not None and terms.withheld:
        return Explanation(asked.key, summary, "withheld", terms.sentence, hit.stage)
    served = f"{hit.route}: {hit.label}, {hit.ratio_to_default:.2f}× the default"
    if hit.final or left is None:
        return Explanation(asked.key, summary, "hit", f"Known: {served}.", hit.stage)
    sentence = f"Known: {served}. Exploring goes on. {left.how}"
    times = left.seconds, left.wait_s
    return Explanation(asked.key, summary, "contested", sentence, hit.stage, *times, position=left.position)


def _meanwhile(asked: ExplainRequest) -> str:
    """What a lookup is given of a target that differs in sizes alone, until somebody serves this one."""
    if is_served(asked.target):
        return ""
    place = (asked.target, asked.setting, asked.scopes, asked.accepts)
    near = find_neighbours([asked.key], *place, own_defaults=True).get(asked.key)
    if near is None or charging().concerns(asked.organisation.pk, [(near.hit, 1.0)]):
        return ""
    differs = "; ".join(f"{name} {theirs}, here {ours}" for name, (ours, theirs) in near.differs.items())
    return (
        f"Until a worker serves this target, who takes neighbours' entries is given {near.hit.route}: "
        f"{near.hit.label} of the target {near.target[:11]}… ({differs}), measured there and not here."
    )


def _exploration(asked: ExplainRequest) -> Exploration | None:
    place = {"target": asked.target, "setting": asked.setting, "scope__in": asked.scopes}
    rows = Exploration.objects.filter(operator__key=asked.key, **place).select_related("operator")
    return rows.order_by("-pk").first()


_OF_STATES: Mapping[str, tuple[str, str]] = {
    MissState.WAITING: ("queued", "It waits to be weighed."),
    MissState.PROMOTED: ("queued", "It is in the explore queue."),
    MissState.POSTPONED: ("postponed", "It was put off."),
    MissState.DISCARDED: ("discarded", "It was decided not to explore it."),
    MissState.UNSUPPORTED: ("unsupported", "No route of this service can express it."),
    MissState.FAILED: ("failed", "Exploring it failed."),
    MissState.EXPLORED: ("failed", "It was explored, and nothing of it can be served."),
}


def _of_miss(asked: ExplainRequest, row: Exploration | None) -> tuple[str, str]:
    place = {"target": asked.target, "setting": asked.setting, "scope__in": asked.scopes}
    miss = Miss.objects.filter(operator__key=asked.key, **place).order_by("-pk").first()
    if miss is None:
        return "unknown", NOBODY_ASKED
    state, sentence = _OF_STATES[miss.state]
    if state == "queued" and row is not None and row.state == "running":
        return "exploring", f"A worker is at it: {row.doing}." if row.doing else "A worker is at it."
    return state, f"{sentence} {miss.reason}".strip()


# ---- what is near ---------------------------------------------------------------------------------------


def _elsewhere(asked: ExplainRequest) -> list[NearEntry]:
    """The same operator on another target or under another setting: the fewest differences first."""
    rows = (
        Best.objects.filter(operator__key=asked.key, rank=0, scope__in=asked.scopes)
        .select_related("target", "setting", "operator")
        .order_by("-pk")[:LOOKED_AT]
    )
    found = [
        _near_row(
            row,
            [
                *_differences("target", asked.target.description, row.target.description),
                *_differences("setting", asked.setting.description, row.setting.description),
            ],
        )
        for row in rows
    ]
    return sorted(found, key=lambda one: len(one.differs))[:NEIGHBOURS]


def _alike(asked: ExplainRequest) -> list[NearEntry]:
    """Operators of the same types here, that differ in the fewest fields; then the nearest in size."""
    assert asked.operator is not None
    operator, setting = asked.operator, identity.Setting.from_json(asked.setting.description)
    sizes, document = features_of(operator, setting), operator.to_json()
    rows = (
        Best.objects.filter(
            operator__op_type="+".join(operator.op_types)[:100],
            target=asked.target,
            setting=asked.setting,
            scope__in=asked.scopes,
            rank=0,
        )
        .exclude(operator__key=asked.key)
        .select_related("target", "setting", "operator")
        .order_by("-pk")[:LOOKED_AT]
    )
    others = {row.pk: read_graph(row.operator.graph) for row in rows}
    apart = {pk: distance(sizes, features_of(one, setting)) for pk, one in others.items() if one is not None}
    near = sorted((row for row in rows if row.pk in apart), key=lambda row: (apart[row.pk], row.pk))[
        :COMPARED
    ]
    found = [(row, _differences("operator", document, row.operator.graph)) for row in near]
    found.sort(key=lambda one: (len(one[1]), apart[one[0].pk], one[0].pk))
    return [_near_row(row, differs) for row, differs in found[:NEIGHBOURS]]


def _near_row(row: Best, differs: Sequence[Difference]) -> NearEntry:
    return NearEntry(
        row.operator.key,
        row.operator.summary,
        row.target.key,
        row.setting.key,
        row.median_us,
        row.ratio_to_default,
        differs[:MOST_DIFFERENCES],
    )


def _near(hit: Hit, asked: ExplainRequest, summary: str, differs: Sequence[Difference]) -> NearEntry:
    return NearEntry(
        hit.key, summary, asked.target.key, asked.setting.key, hit.median_us, hit.ratio_to_default, differs
    )


def _lacking(hit: Hit, accepts: Accepts | None) -> list[Difference]:
    """What of the fastest cannot be loaded by who accepts this."""
    if accepts is None:
        return []
    found = []
    if accepts.kinds is not None and hit.kind not in accepts.kinds:
        found.append(Difference("kind", ", ".join(sorted(accepts.kinds)), hit.kind))
    for need in filter(None, hit.needs.split(",")):
        name, _, version = need.partition("==")
        have = (accepts.versions or {}).get(name, "not installed")
        if accepts.versions is not None and have.partition("+")[0] != version:
            found.append(Difference(f"needs.{name}", have, version))
    return found


def _differences(name: str, asked: Any, known: Any) -> list[Difference]:
    return list(islice(_walk(name, asked, known), 4 * MOST_DIFFERENCES))


def _walk(path: str, asked: Any, known: Any) -> Iterator[Difference]:
    if isinstance(asked, dict) and isinstance(known, dict):
        for name in dict.fromkeys((*asked, *known)):
            yield from _walk(f"{path}.{name}", asked.get(name), known.get(name))
    elif _is_rows(asked) and _is_rows(known) and len(asked) == len(known):
        for number, (one, other) in enumerate(zip(asked, known, strict=True)):
            yield from _walk(f"{path}[{number}]", one, other)
    elif asked != known:
        yield Difference(path, _shown(asked, known), _shown(known, asked))


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _shown(value: Any, other: Any) -> str:
    """In a few characters; of long lists of names what the other one lacks."""
    if isinstance(value, list) and isinstance(other, list) and len(value) > 12:
        there = set(map(str, other))
        lacking = [text for text in map(str, value) if text not in there]
        return "with " + ", ".join(lacking)[:200] if lacking else "without these"
    text = "×".join(map(str, value)) if isinstance(value, list) and value else str(value)
    return "none" if value is None else text[:200]
