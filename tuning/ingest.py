"""Models as input: taken apart, looked up, and reported on.

What the bytes mean is :mod:`tuning.graph`'s business; here they become rows, and their operators are asked
for like any job's.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from catalog import models
from catalog.best.served import scopes_of
from catalog.conf import conf
from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup
from catalog.models import MissState
from catalog.registry import register_operators, register_setting, register_target
from catalog.selectors.jobs import WITHHELD
from catalog.selectors.targets import target_named
from catalog.withheld import prices_withheld_of
from opatlas import identity
from opatlas.errors import InvalidModel, InvalidOperator
from opatlas.graph import Extracted, Extraction
from opatlas.graph.structure import ModelStructure
from opatlas.identity import Setting, check_fits, check_setting, default_setting, detect_target
from tuning.graph import SAMPLES, sample_graph, sample_model
from tuning.graph.apart import TakenApart, content_sha256, take_apart

__all__ = [
    "SAMPLES",
    "ModelReport",
    "Named",
    "ReportedOperator",
    "Totals",
    "add_model",
    "default_place",
    "model_report",
    "sample_graph",
    "sample_model",
]

BATCH = 256
"""Operators in one lookup: others write to the database between two."""

MAX_REASONS = 100
OTHER_REASONS = "other reasons"
TOO_LARGE = "needs more memory than this service gives one operator"
NO_ROUTE_STATES: Mapping[str, str] = {MissState.UNSUPPORTED: "unsupported", MissState.FAILED: "failed"}


# A report has a row for each of some thousand operators: tuples, because model instances, of which each row
# would need four, take most of the time that such a page takes.
class Named(NamedTuple):
    """An operator as a report names it."""

    pk: int
    key: str
    op_type: str
    summary: str


class ReportedOperator(NamedTuple):
    """One operator of a model. Times in µs of one call; ``ratio`` is default ÷ best with its interval.

    ``status`` is hit, withheld (until it is paid), miss, unsupported or failed; ``reason`` says why it is no
    hit. ``miss_state`` is its miss's state now, empty where it was never missed. ``share`` is its part of the
    model's default time, None where no time is known.
    """

    operator: Named
    calls: int
    example: str
    status: str
    miss_state: str = ""
    reason: str = ""
    route: str = ""
    method: str = ""
    label: str = ""
    median_us: float | None = None
    default_us: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    share: float | None = None


@dataclass(frozen=True)
class Totals:
    """A model as a whole. ``default_us`` and ``best_us`` sum calls × time over the operators that have times.

    ``speedup`` is their ratio; ``speedup_weighted`` is the geometric mean of ratios weighted by default time;
    ``speedup_geomean`` counts every operator once, those without a hit as 1. All are None while nothing is
    known.
    """

    calls: int
    operators: int
    hit_calls: int
    hit_share: float
    unmapped: Mapping[str, int] = field(default_factory=dict)
    unmapped_calls: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)  # status → operators
    default_us: float = 0.0
    best_us: float = 0.0
    speedup_weighted: float | None = None
    speedup_geomean: float | None = None

    @property
    def speedup(self) -> float | None:
        """How many times as fast one run is over the operators that are known: the defaults' time in all ÷
        the bests'."""
        return self.default_us / self.best_us if self.default_us and self.best_us else None


@dataclass(frozen=True)
class ModelReport:
    """What is known of a model, its operators with the largest share of its time first."""

    model: models.Model
    rows: Sequence[ReportedOperator]
    totals: Totals


def default_place(
    threads: int | None = None, target: str = ""
) -> tuple[models.Target | identity.Target, identity.Setting]:
    """The target of this name, or one that is served (else this machine); its default setting or as many
    threads as asked for."""
    if target:
        served: models.Target | None = target_named(target)
    else:
        served = models.Target.objects.filter(served_until__gt=Now()).order_by("pk").first()
    hardware = identity.Target.from_json(served.description) if served else detect_target()
    setting = Setting(threads=threads) if threads else default_setting(hardware)
    check_setting(setting, hardware)
    return served or hardware, setting


@dataclass(frozen=True)
class ModelWish:
    """What somebody gave, beside its bytes: whose it is and where its operators are looked up."""

    name: str
    sha256: str  # tuning.graph.apart.content_sha256
    organisation: models.Organisation
    target: models.Target | identity.Target
    setting: models.Setting | identity.Setting
    api_key: models.ApiKey | None = None


@dataclass
class AskedSoFar:
    """How far a model's operators were asked for. One that is kept goes on where it was, in another
    process too."""

    operators: int = 0
    hit_calls: int = 0

    def keep(self) -> None:
        """Called in the transaction of each batch; what raises here undoes the batch."""


def add_model(
    data: bytes,
    name: str,
    *,
    dims: Mapping[str, int] | None = None,
    organisation: models.Organisation,
    target: models.Target | identity.Target,
    setting: models.Setting | identity.Setting,
    api_key: models.ApiKey | None = None,
    as_float32: bool = False,
) -> models.Model:
    """Take a model's bytes (ONNX, or an operator list in JSON) apart in this process, and look every operator
    up.

    What is not known is recorded as a miss. Of an ONNX model the structure is kept, without its weights. The
    same content given again is the same model, asked for once more. ``as_float32`` maps an operator list's
    half-precision tensors to float32 (its form says so). Raises :class:`InvalidModel` and then has changed
    nothing.
    """
    name = checked_name(name)
    taken = shown(take_apart(data, dict(dims or {}), as_float32))
    sha256 = content_sha256(hashlib.sha256(data), dims or {}, as_float32)
    wish = ModelWish(name, sha256, organisation, target, setting, api_key)
    return keep_model(taken, ask(taken, wish, AskedSoFar()), wish)[0]


def checked_name(name: str) -> str:
    """Raises :class:`InvalidModel`."""
    name = name.strip()
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise InvalidModel("A model's name must have 1 to 200 printable characters.")
    return name


def shown(taken: TakenApart) -> TakenApart:
    """With what this service can explore and count, and reasons that can be stored and read. Raises
    :class:`InvalidModel`."""
    extraction = _readable(_within_memory(taken.extraction))
    if extraction.calls > 2**31 - 1:
        raise InvalidModel(f"The model makes {extraction.calls} calls; at most {2**31 - 1} can be counted.")
    return replace(taken, extraction=extraction)


def keep_model(taken: TakenApart, asked: AskedSoFar, wish: ModelWish) -> tuple[models.Model, bool]:
    """The row of a model whose operators were asked for, and whether it is new: the same content is the same
    row."""
    target, setting = _place(wish)
    extraction, structure = taken.extraction, taken.structure
    row = models.Model(
        organisation=wish.organisation,
        name=wish.name,
        sha256=wish.sha256,
        form=taken.form,
        target=target,
        setting=setting,
        calls=extraction.calls,
        unmapped=extraction.unmapped,
        hits_before=asked.hit_calls / extraction.calls if extraction.calls else 0.0,
        structure_key=structure.key if structure else "",
    )
    kept = _stored(row, extraction.operators)
    if structure is not None:
        _keep_structure(kept, structure)
    return kept, kept is row


def model_report(model: models.Model) -> ModelReport:
    """What is known of each operator now, in a constant number of queries."""
    of_operator = [f"operator__{name}" for name in Named._fields]
    given = models.ModelOperator.objects.filter(model=model)
    parts = [
        _Part(calls, example, Named(*named))
        for calls, example, *named in given.values_list("calls", "example", *of_operator)
    ]
    here = {"operator__models__model": model, "target": model.target_id, "setting": model.setting_id}
    scopes = scopes_of(model.organisation)
    bests = _nearest(models.Best.objects.filter(**here, rank=0), scopes, _Known)
    misses = _nearest(models.Miss.objects.filter(**here), scopes, _Missed)
    known = [part for part in parts if part.operator.pk in bests]
    whole_us = sum(part.calls * bests[part.operator.pk].default_us for part in known)
    rows = [_row(part, bests.get(part.operator.pk), misses.get(part.operator.pk), whole_us) for part in parts]
    held = prices_withheld_of(model)
    rows = [_withheld(row, held[row.operator.pk]) if row.operator.pk in held else row for row in rows]
    rows.sort(key=lambda row: (-(row.share or 0.0), -row.calls, row.operator.key))
    return ModelReport(model, rows, _totals(model, rows))


class _Part(NamedTuple):
    calls: int
    example: str
    operator: Named


class _Known(NamedTuple):
    """What a report takes from a best; named as in the table."""

    route: str
    method: str
    label: str
    median_us: float
    default_us: float
    ratio_to_default: float
    ratio_low: float
    ratio_high: float


class _Missed(NamedTuple):
    """What a report takes from a miss; named as in the table."""

    state: str
    reason: str


_Taken = TypeVar("_Taken", _Known, _Missed)


def _nearest(rows: QuerySet[Any], scopes: Sequence[str], kind: type[_Taken]) -> dict[int, _Taken]:
    """Operator → what is taken of its row, that of the scope to look in first where there are several."""
    found: dict[int, _Taken] = {}
    wanted = rows.filter(scope__in=scopes).values_list("operator", "scope", *kind._fields)
    for operator, scope, *values in wanted:
        if operator not in found or scope == scopes[0]:
            found[operator] = kind(*values)
    return found


def _place(wish: ModelWish) -> tuple[models.Target, models.Setting]:
    target, setting = wish.target, wish.setting
    return (
        register_target(target) if isinstance(target, identity.Target) else target,
        register_setting(setting) if isinstance(setting, identity.Setting) else setting,
    )


def _within_memory(extraction: Extraction) -> Extraction:
    """Operators that this service would refuse are counted, so that one giant does not refuse the model."""
    limit, unmapped = conf().max_operator_bytes, Counter(extraction.unmapped)
    kept: list[Extracted] = []
    for found in extraction.operators:
        try:
            check_fits(found.operator, limit)
        except InvalidOperator:
            unmapped[f"{'+'.join(found.operator.op_types)[:60]}: {TOO_LARGE}"] += found.calls
        else:
            kept.append(found)
    return Extraction(kept, dict(unmapped), extraction.folded)


def _readable(extraction: Extraction) -> Extraction:
    """With reasons that can be stored and read: they quote names that somebody else chose."""
    reasons: Counter[str] = Counter()
    for reason, calls in sorted(extraction.unmapped.items(), key=lambda item: -item[1]):
        text = "".join(filter(str.isprintable, reason))[:300]
        reasons[text if len(reasons) < MAX_REASONS or text in reasons else OTHER_REASONS] += calls
    return Extraction(extraction.operators, dict(reasons), extraction.folded)


def ask(taken: TakenApart, wish: ModelWish, asked: AskedSoFar) -> AskedSoFar:
    """Look the operators up that were not asked for yet, batch by batch, each in a transaction of its own."""
    operators = taken.extraction.operators
    target, setting = _place(wish)
    while batch := operators[asked.operators : asked.operators + BATCH]:
        with transaction.atomic():
            request = LookupRequest(
                target=target,
                setting=setting,
                operators=[AskedOperator(one.operator.key, one.calls, one.operator) for one in batch],
                organisation=wish.organisation,
                api_key=wish.api_key,
                job=wish.name,
            )
            for found, result in zip(batch, lookup(request).results, strict=True):
                asked.hit_calls += found.calls if result.status == "hit" else 0
            asked.operators += len(batch)
            asked.keep()
    return asked


def _stored(row: models.Model, operators: Sequence[Extracted]) -> models.Model:
    """The model's row with its operators; the one that is there already where it was given before."""
    known = register_operators({found.operator.key: found.operator for found in operators})
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            models.ModelOperator.objects.bulk_create(
                models.ModelOperator(
                    model=row,
                    operator=known[found.operator.key],
                    calls=found.calls,
                    example="".join(filter(str.isprintable, found.example))[:300],
                )
                for found in operators
            )
    except IntegrityError:  # somebody gave the same content before, or just now
        same = ("organisation", "sha256", "target", "setting", "name")
        return models.Model.objects.get(**{name: getattr(row, name) for name in same})
    return row


def _keep_structure(row: models.Model, structure: ModelStructure) -> None:
    """Also of a model that was given before structures were kept."""
    packed = {"packed": structure.packed()}
    _, is_new = models.StoredStructure.objects.get_or_create(model=row, defaults=packed)
    if is_new and row.structure_key != structure.key:
        models.Model.objects.filter(pk=row.pk).update(structure_key=structure.key)
        row.structure_key = structure.key


def _row(part: _Part, known: _Known | None, missed: _Missed | None, whole_us: float) -> ReportedOperator:
    state, reason = missed or ("", "its miss was not queued")
    if known is None:
        if state in (MissState.POSTPONED, MissState.DISCARDED):
            reason = f"{state}: {reason}" if reason else state
        status = NO_ROUTE_STATES.get(state, "miss")
        return ReportedOperator(part.operator, part.calls, part.example, status, state, reason)
    share = part.calls * known.default_us / whole_us if whole_us else None
    return ReportedOperator(part.operator, part.calls, part.example, "hit", state, "", *known, share)


def _withheld(row: ReportedOperator, price: str) -> ReportedOperator:
    """A best that the model's organisation gets only once it is paid: not what its runs take."""
    return ReportedOperator(
        row.operator,
        row.calls,
        row.example,
        WITHHELD,
        row.miss_state,
        price,
        default_us=row.default_us,
        share=row.share,
    )


def _totals(model: models.Model, rows: Sequence[ReportedOperator]) -> Totals:
    hit_calls = sum(row.calls for row in rows if row.status == "hit")
    timed = [row for row in rows if row.ratio and row.default_us and row.median_us]
    logs = [math.log(row.ratio or 1.0) for row in timed]
    weights = [row.calls * (row.default_us or 0.0) for row in timed]
    weighted = sum(weight * log for weight, log in zip(weights, logs, strict=True))
    return Totals(
        calls=model.calls,
        operators=len(rows),
        hit_calls=hit_calls,
        hit_share=hit_calls / model.calls if model.calls else 0.0,
        unmapped=dict(sorted(model.unmapped.items(), key=lambda item: -item[1])),
        unmapped_calls=sum(model.unmapped.values()),
        by_status=dict(Counter(row.status for row in rows)),
        default_us=sum(weights),
        best_us=sum(row.calls * (row.median_us or 0.0) for row in timed),
        speedup_weighted=math.exp(weighted / sum(weights)) if timed else None,
        speedup_geomean=math.exp(sum(logs) / len(rows)) if timed else None,
    )
