"""Messy traffic, seeded: several organisations, private scopes, zero rows, no names, days apart."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from catalog import models as c
from catalog.usage.stale import mark_stale

NOW = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)
_ROUTES = (("eager", "library"), ("onednn", "library"), ("tvm", "compiler"), ("cpp", "manual"))


def lookups_of(usage: QuerySet[c.Usage]) -> int:
    """What these rows count as: a client reports several lookups in one."""
    return sum(usage.values_list("lookups", flat=True))


def messy_traffic(seed: int = 3, operators: int = 14, lookups: int = 260) -> None:
    """Usage, tallies, jobs' operators, misses and bests, as the drain and publishing leave them."""
    chance = random.Random(seed)
    organisations = [
        c.Organisation.objects.get_or_create(name=name)[0] for name in ("north", "south", "idle")
    ]
    known = [_operator(number, chance) for number in range(operators)]
    place = _place()
    _bests(known, place, organisations, chance)
    jobs = [
        c.Job.objects.create(organisation=organisation, name=f"job {number}")
        for organisation in organisations[:2]
        for number in range(3)
    ]
    for number, operator in enumerate(known[:10]):
        miss = c.Miss.objects.create(
            operator=operator, **place, job=None if number % 4 == 3 else chance.choice(jobs)
        )
        if number % 5 == 0:  # a later miss of somebody else, in a private scope: not the first
            c.Miss.objects.create(operator=operator, **place, scope="org:1", job=chance.choice(jobs))
        c.Miss.objects.filter(pk=miss.pk).update(first_asked_at=NOW - timedelta(days=40))
    usage: list[c.Usage] = []
    tallies: dict[Any, c.LookupTally] = {}
    counts: dict[Any, c.JobOperator] = {}
    for number in range(lookups):
        _lookup(number, chance, known, organisations[:2], jobs, usage, tallies, counts)
    for rows in (usage, tallies.values(), counts.values()):
        type(next(iter(rows))).objects.bulk_create(rows)
    c.LookupTally.objects.create(
        hour=NOW.replace(minute=0) - timedelta(hours=5), operator=known[-1], organisation=organisations[2]
    )  # a row of zeros
    mark_stale(c.LookupTally.objects.values_list("hour", flat=True).distinct())


def _operator(number: int, chance: random.Random) -> c.Operator:
    return c.Operator.objects.create(
        key=f"o1:{hashlib.sha256(f'messy {number}'.encode()).hexdigest()}",
        graph={},
        op_type=chance.choice(["Conv", "MatMul", "Relu"]),
        summary=f"Relu {number}×64 float32",
        dtype="float32",
        bytes_moved=0 if number == 0 else 10 ** chance.uniform(2, 9),
    )


def _place() -> dict[str, object]:
    target, _ = c.Target.objects.get_or_create(
        key="t1:" + "a" * 64,
        defaults={"kind": "cpu", "arch": "zen3", "capability": "cpu.zen3", "description": {}},
    )
    setting, _ = c.Setting.objects.get_or_create(
        key="s1:" + "a" * 64, defaults={"threads": 2, "cache": "warm", "description": {}}
    )
    return {"target": target, "setting": setting}


def _bests(
    known: list[c.Operator],
    place: dict[str, object],
    organisations: list[c.Organisation],
    chance: random.Random,
) -> None:
    artifact, _ = c.Artifact.objects.get_or_create(
        sha256="c" * 64, defaults={"kind": "recipe", "manifest": {}}
    )
    environment, _ = c.Environment.objects.get_or_create(digest="d" * 64, defaults={"versions": {}})
    for number, operator in enumerate(known[:11]):
        private = number % 5 == 4
        scope = f"org:{organisations[0].pk}" if private or number == 2 else "shared"
        for which in {"shared" if number == 2 else scope, scope}:
            ratios = sorted((chance.uniform(0.4, 3.0) for _ in _ROUTES[: 1 + number % 4]), reverse=True)
            for rank, ((route, method), ratio) in enumerate(zip(_ROUTES, ratios, strict=False)):
                _best(operator, place, which, route, method, rank, ratio, artifact, environment)
    some = c.Implementation.objects.order_by("pk").first()
    assert some is not None
    c.Implementation.objects.create(
        **{name: getattr(some, name) for name in ("operator", "target", "setting", "scope")},
        route="onednn", method="library", label="revoked", candidate={}, candidate_sha256="e" * 64,
        artifact=artifact, environment=environment, revoked_at=NOW,
    )  # fmt: skip


def _best(
    operator: c.Operator, place: dict[str, object], scope: str, route: str, method: str, rank: int,
    ratio: float, artifact: c.Artifact, environment: c.Environment,
) -> None:  # fmt: skip
    where = {"operator": operator, **place, "scope": scope, "route": route, "method": method, "label": route}
    times = {"median_us": 100 / ratio, "spread_us": 1.0, "default_us": 100.0, "ratio_to_default": ratio}
    times |= {"ratio_low": ratio * 0.98, "ratio_high": ratio * 1.02}
    made = c.Implementation.objects.create(
        **where, candidate={}, candidate_sha256=hashlib.sha256(f"{route}".encode()).hexdigest(),
        artifact=artifact, environment=environment,
    )  # fmt: skip
    measured = c.Measurement.objects.create(implementation=made, tier="T2", **times)
    c.Best.objects.create(
        **where, **times, kind="recipe", implementation=made, measurement=measured,
        artifact_sha256=artifact.sha256, measured_at=NOW, rank=rank,
    )  # fmt: skip


def _lookup(
    number: int,
    chance: random.Random,
    known: list[c.Operator],
    organisations: list[c.Organisation],
    jobs: list[c.Job],
    usage: list[c.Usage],
    tallies: dict[Any, c.LookupTally],
    counts: dict[Any, c.JobOperator],
) -> None:
    """One operator asked for once, as the drain writes it down."""
    operator = known[int(len(known) * chance.random() ** 2)]
    job = chance.choice([*jobs, None])
    organisation = job.organisation if job else chance.choice(organisations)
    at = NOW - timedelta(hours=min(chance.expovariate(1 / 60), 900))
    calls = chance.choice([1.0, 2.5, 0.0, 40.0])
    hour = at.replace(minute=0, second=0, microsecond=0)
    place = {"hour": hour, "operator": operator, "organisation": organisation}
    tally = tallies.setdefault(tuple(place.values()), c.LookupTally(**place))
    asked = None
    if job is not None:
        asked = counts.setdefault((job, operator), c.JobOperator(job=job, operator=operator))
    if chance.random() < 0.3:
        tally.misses += 1
        tally.miss_calls += calls
        if asked:
            asked.misses += 1
    else:
        route, method = chance.choice(_ROUTES)
        lookups = 1 if number % 3 else 7  # a client's report
        median_us, default_us = chance.uniform(5, 120), 100.0
        usage.append(c.Usage(
            organisation=organisation, job=job, operator=operator, route=route, method=method,
            median_us=median_us, default_us=default_us, calls=calls, lookups=lookups, served_at=at, node="n",
            segment="s", offset=number, item=0,
        ))  # fmt: skip
        tally.hits += lookups
        tally.hit_calls += calls
        tally.saved_us += calls * (default_us - median_us)
        if asked:
            asked.hits += lookups
