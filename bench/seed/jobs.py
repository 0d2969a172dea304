"""What invented lookups come to for each job: by operator, by day and method, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.seed.bulk import insert
from bench.seed.catalogue import DAYS, World
from catalog import models

METHODS = [method.value for method in models.Method]


@dataclass(frozen=True)
class SeededLookups:
    """A block of lookups' items, by column; ``job`` and ``operator`` are numbered from 0 on, ``owner`` is an
    organisation's row. What was saved is 0 for a miss."""

    job: NDArray[np.int64]
    item: NDArray[np.int64]
    operator: NDArray[np.int64]
    owner: NDArray[np.int64]
    hit: NDArray[np.bool_]
    calls: NDArray[np.int64]
    saved_us: NDArray[np.float64]
    at_s: NDArray[np.int64]


class JobCounts:
    """Sums over blocks. ``sizes``: how many operators each job asks for."""

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        self._sizes = sizes
        self._starts = sizes.cumsum() - sizes
        count = int(sizes.sum())
        self._by_operator = {
            name: np.zeros(count) for name in ("hits", "misses", "hit_calls", "miss_calls", "saved_us")
        }
        self._last_s = np.zeros(count, np.int64)
        self._by_day = {
            name: np.zeros(len(sizes) * DAYS * len(METHODS))
            for name in ("hits", "calls", "default_us", "saved_us")
        }

    def add(self, lines: SeededLookups, default_us: NDArray[np.float64], method: NDArray[np.int64]) -> None:
        """``method``: indices into METHODS; both mean nothing where it is no hit."""
        place, hit, calls = self._starts[lines.job] + lines.item, lines.hit, lines.calls
        day = (lines.job * DAYS + lines.at_s // 86_400) * len(METHODS) + method
        for sums, where, name, values in (
            (self._by_operator, place, "hits", hit),
            (self._by_operator, place, "misses", ~hit),
            (self._by_operator, place, "hit_calls", hit * calls),
            (self._by_operator, place, "miss_calls", ~hit * calls),
            (self._by_operator, place, "saved_us", lines.saved_us),
            (self._by_day, day, "hits", hit),
            (self._by_day, day, "calls", hit * calls),
            (self._by_day, day, "default_us", hit * calls * default_us),
            (self._by_day, day, "saved_us", lines.saved_us),
        ):
            sums[name] += np.bincount(where, values, len(sums[name]))
        self._last_s[place] = lines.at_s  # they come in the order of time

    def save(
        self,
        world: World,
        jobs: range,
        operator_of: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]],
    ) -> None:
        """``operator_of``: (job, item) → operator, all numbered from 0 on."""
        job = np.repeat(np.arange(len(self._sizes)), self._sizes)
        item = np.arange(len(job)) - self._starts[job]
        there = self._by_operator["hits"] + self._by_operator["misses"] > 0
        sums = {name: values[there] for name, values in self._by_operator.items()}
        insert(
            models.JobOperator,
            {
                "job_id": job[there] + jobs.start,
                "operator_id": operator_of(job[there], item[there]) + world.operators.start,
                **sums,
                "hits": sums["hits"].astype(int),
                "misses": sums["misses"].astype(int),
                "last_at": world.moments(self._last_s[there]),
            },
        )
        self._save_days(world, jobs)
        self._save_places(world, jobs)

    def _save_days(self, world: World, jobs: range) -> None:
        chosen = np.flatnonzero(self._by_day["hits"])
        sums = {name: values[chosen].round(3) for name, values in self._by_day.items()}
        kind = len(METHODS)
        insert(
            models.JobDay,
            {
                "job_id": chosen // kind // DAYS + jobs.start,
                "start": world.moments(chosen // kind % DAYS * 86_400),
                "method": [METHODS[number] for number in (chosen % kind).tolist()],
                **sums,
                "hits": sums["hits"].astype(int),
            },
        )

    def _save_places(self, world: World, jobs: range) -> None:
        last_s = np.maximum.reduceat(self._last_s, self._starts)
        served = np.add.reduceat(self._by_operator["hits"], self._starts) > 0
        insert(
            models.JobPlace,
            {
                "job_id": np.flatnonzero(served) + jobs.start,
                **world.place,
                "last_at": world.moments(last_s[served]),
            },
        )
