"""Invented traffic on an invented catalogue: jobs, models, lookups with their tallies.

A lookup is a job asking for its model's operators at once; popular jobs and operators are asked for by far
more often than others (Zipf). What is known at a lookup's time is a hit and a usage row, the rest a miss.
Tallies and job operators are counted from the same lookups.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.seed.bulk import first_free, insert
from bench.seed.catalogue import DAYS, World, routes_of
from bench.seed.implementations import NAME
from bench.seed.jobs import METHODS, JobCounts, SeededLookups
from catalog import models

_BUSY = 3000
"""Operators of the first model: the report of a large job."""

_ITEMS_AT_ONCE = 400_000


@dataclass
class SeededDemand:
    """Who asks for what. Model ``m`` has ``operators[starts[m]:starts[m + 1]]``."""

    operators: NDArray[np.int64]  # numbers from 0 on
    calls: NDArray[np.int64]
    starts: NDArray[np.int64]
    job_model: NDArray[np.int64]
    job_owner: NDArray[np.int64]  # organisations' rows
    jobs: range

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.starts)


def zipf(count: int, exponent: float) -> NDArray[np.float64]:
    """Shares of ``count`` things by popularity, cumulated: for ``searchsorted``."""
    weights = 1 / np.arange(1, count + 1) ** exponent
    return (weights / weights.sum()).cumsum()


def add_models_and_jobs(world: World) -> SeededDemand:
    """Models take popular operators more often; each job asks for one model's."""
    random, total = world.random, len(world.operators)
    models_count = max(world.size.usage // 10_000, 8)
    jobs_count = max(world.size.usage // 2_000, 24)
    popular = random.permutation(total)
    shares = zipf(total, 0.9)
    taken = []
    for number in range(models_count):
        wanted = min(_BUSY, total // 3) if number == 0 else int(random.integers(20, 120))
        taken.append(popular[np.unique(np.searchsorted(shares, random.random(wanted)))])
    sizes = np.asarray([len(one) for one in taken])
    starts = np.concatenate([[0], sizes.cumsum()])
    operators = np.concatenate(taken)
    owners = np.asarray(world.organisations)
    # The first job asks for the largest model and belongs to the first tenant, which asks most.
    job_model = random.integers(0, models_count, jobs_count)
    job_model[1:] = np.maximum(job_model[1:], 1)
    job_model[0] = 0
    job_owner = owners[np.searchsorted(zipf(len(owners), 0.7), random.random(jobs_count))]
    job_owner[0] = owners[1]
    jobs = insert(
        models.Job,
        {
            "name": [f"{NAME}-job-{number}" for number in range(jobs_count)],
            "organisation_id": job_owner,
            "created_at": world.moment(0),
        },
    )
    calls = random.integers(1, 13, len(operators))
    asked = SeededDemand(operators, calls, starts, job_model, job_owner, jobs)
    _add_models(world, asked)
    return asked


def _add_models(world: World, asked: SeededDemand) -> None:
    count = len(asked.sizes)
    owners = np.asarray(world.organisations)[np.arange(count) % len(world.organisations)]
    rows = insert(
        models.Model,
        {
            "organisation_id": owners,
            "name": [f"{NAME}-model-{number}" for number in range(count)],
            "sha256": [hashlib.sha256(f"{NAME} {number}".encode()).hexdigest() for number in range(count)],
            "form": "operator-list",
            **world.place,
            "calls": np.add.reduceat(asked.calls, asked.starts[:-1]),
            "unmapped": "{}",
            "hits_before": 0.4,
            "created_at": world.moment(0),
        },
    )
    insert(
        models.ModelOperator,
        {
            "model_id": np.repeat(np.asarray(rows), asked.sizes),
            "operator_id": asked.operators + world.operators.start,
            "calls": asked.calls,
            "example": f"/{NAME}",
        },
    )


@dataclass
class _Lookups:
    """Lookups in the order of time."""

    job: NDArray[np.int64]
    at_s: NDArray[np.int64]


def _plan(world: World, asked: SeededDemand) -> _Lookups:
    """As many lookups as give the wanted hits; a job's replicas ask at the same time."""
    random, shares = world.random, zipf(len(asked.jobs), 0.8)
    drawn: list[_Lookups] = []
    hits: list[NDArray[np.int64]] = []
    while sum(int(part.sum()) for part in hits) < world.size.usage:
        runs = max(world.size.usage // 1_000, 4)
        job = np.searchsorted(shares, random.random(runs))
        day = random.integers(0, DAYS, runs)
        second = np.clip(random.normal(14 * 3600, 4 * 3600, runs), 0, 86_399)
        # The last day is not over yet.
        second *= np.where(day == DAYS - 1, (world.now_s - (DAYS - 1) * 86_400) / 86_400, 1)
        at_s = day * 86_400 + second.astype(np.int64)
        # A large job is started seldom, or it would be most of the traffic.
        kept = (job != 0) | (random.random(runs) < 0.02)
        job[0], kept[0] = 0, True
        replicas = 2 ** random.integers(0, 5, runs) * kept
        drawn.append(_Lookups(np.repeat(job, replicas), np.repeat(at_s, replicas)))
        hits.append(_hits_of(world, asked, drawn[-1]))
    enough = int(np.searchsorted(np.concatenate(hits).cumsum(), world.size.usage)) + 1
    job = np.concatenate([part.job for part in drawn])[:enough]
    at_s = np.concatenate([part.at_s for part in drawn])[:enough]
    order = np.argsort(at_s, kind="stable")
    return _Lookups(job[order], at_s[order])


def _hits_of(world: World, asked: SeededDemand, lookups: _Lookups) -> NDArray[np.int64]:
    """How many of each lookup's operators were known then."""
    hits = np.zeros(len(lookups.job), np.int64)
    of_model = asked.job_model[lookups.job]
    for model in np.unique(of_model).tolist():
        known_at_s = np.sort(world.known_at_s[asked.operators[asked.starts[model] : asked.starts[model + 1]]])
        chosen = of_model == model
        hits[chosen] = np.searchsorted(known_at_s, lookups.at_s[chosen], "right")
    return hits


def add_usage(world: World, asked: SeededDemand) -> Iterator[int]:
    """Usage, tallies and job operators; yields how many usage rows there are."""
    lookups = _plan(world, asked)
    items = asked.sizes[asked.job_model[lookups.job]]
    counted = JobCounts(asked.sizes[asked.job_model])
    best = _Best(world)
    usage_id, tally_id = first_free(models.Usage), first_free(models.LookupTally)
    done = 0
    for begin, end in _blocks(lookups.at_s // 3600, items):
        count = items[begin:end]
        lookup = np.repeat(np.arange(begin, end), count)
        item = np.arange(len(lookup)) - np.repeat(count.cumsum() - count, count)
        job = lookups.job[lookup]
        place = asked.starts[asked.job_model[job]] + item
        operator, calls = asked.operators[place], asked.calls[place]
        hit = world.known_at_s[operator] <= lookups.at_s[lookup]
        # The last block gives no more hits than were wanted.
        over = done + int(hit.sum()) - world.size.usage
        if over > 0:
            last = np.flatnonzero(hit)[-over]
            keep = slice(0, int(last))
            lookup, item, job, place = lookup[keep], item[keep], job[keep], place[keep]
            operator, calls, hit = operator[keep], calls[keep], hit[keep]
        at_s = lookups.at_s[lookup]
        owner = asked.job_owner[job]
        saved_us = hit * calls * best.saved_us[np.where(hit, operator, 0)]
        rows = insert(
            models.Usage,
            {
                "organisation_id": owner[hit],
                "job_id": job[hit] + asked.jobs.start,
                "operator_id": operator[hit] + world.operators.start,
                **best.columns(operator[hit]),
                "calls": calls[hit].astype(float),
                "served_at": world.moments(at_s[hit]),
                "node": NAME,
                "segment": NAME,
                "offset": lookup[hit],
                "item": item[hit],
            },
            usage_id,
        )
        usage_id, done = rows.stop, done + len(rows)
        lines = SeededLookups(job, item, operator, owner, hit, calls, saved_us, at_s)
        tally_id = _add_tallies(world, lines, tally_id)
        counted.add(lines, best.default_us[np.where(hit, operator, 0)], best.methods(operator, hit))
        yield done
        if done >= world.size.usage:
            break
    places = asked.starts[asked.job_model]
    counted.save(world, asked.jobs, lambda job, item: asked.operators[places[job] + item])


def _blocks(hours: NDArray[np.int64], items: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of lookups, whole hours each, of about so many items."""
    ends = np.append(np.flatnonzero(np.diff(hours)) + 1, len(hours))
    before = np.append(0, items.cumsum())
    begin = 0
    for end in ends.tolist():
        if before[end] - before[begin] >= _ITEMS_AT_ONCE or end == len(hours):
            yield begin, end
            begin = end


class _Best:
    """Who serves each known operator: columns of its usage rows."""

    def __init__(self, world: World) -> None:
        known = world.size.known
        slot = np.arange(known) * 4 + world.winner
        self._implementation = slot + world.implementations.start
        self._median_us = world.median_us[slot].round(3)
        self.default_us = world.default_us[:known].round(3)
        self.saved_us = self.default_us - self._median_us
        pairs = [routes_of(n)[w] for n, w in enumerate(world.winner.tolist())]
        self._routes = [route for route, _ in pairs]
        self._methods = [method for _, method in pairs]
        self._method = np.asarray([METHODS.index(method) for method in self._methods])

    def methods(self, operators: NDArray[np.int64], hit: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Indices into METHODS; of no meaning where it is no hit."""
        return self._method[np.where(hit, operators, 0)]

    def columns(self, operators: NDArray[np.int64]) -> dict[str, object]:
        numbers = operators.tolist()
        return {
            "implementation_id": self._implementation[operators],
            "route": [self._routes[number] for number in numbers],
            "method": [self._methods[number] for number in numbers],
            "median_us": self._median_us[operators],
            "default_us": self.default_us[operators],
        }


def _add_tallies(world: World, lines: SeededLookups, first: int) -> int:
    span, owners = len(world.operators), max(world.organisations) + 1
    hit, hours = lines.hit, lines.at_s // 3600
    keys, where = np.unique((hours * span + lines.operator) * owners + lines.owner, return_inverse=True)
    count = len(keys)
    rows = insert(
        models.LookupTally,
        {
            "hour": world.moments(keys // owners // span * 3600),
            "operator_id": keys // owners % span + world.operators.start,
            "organisation_id": keys % owners,
            "hits": np.bincount(where, hit, count).astype(int),
            "misses": np.bincount(where, ~hit, count).astype(int),
            "hit_calls": np.bincount(where, hit * lines.calls, count),
            "miss_calls": np.bincount(where, ~hit * lines.calls, count),
            "saved_us": np.bincount(where, lines.saved_us, count).round(3),
        },
        first,
    )
    return rows.stop
