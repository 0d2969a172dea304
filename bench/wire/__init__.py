"""``make bench ONLY=wire``: lookups that hit, at the speed that one web server can answer at all.

On SQLite and PostgreSQL, with catalogues of CATALOGUE (``1k,1M``) and one and two web processes, in turns:

- ``hit_rps``, a single metered hit (of 200 operators, each with its key), against ``bare_rps``, a bare WSGI
  reply of the same bytes by the same web server; ``p99_ratio`` of both at 70 % of what each answers at most;
- ``batch_keys_ratio``: keys a second in lookups of 100, against single hits;
- ``drf_ratio``: all through Django (nothing is remembered) against an empty DRF view without middleware;
  ``cold_ratio``: a hit that is not remembered, of a key that is, against the same;
- Redis GET of the same value beside it; seconds from publishing to the first new answer.

wrk makes the load, and takes a core of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.conf import conf
from bench.record import BenchRecord
from bench.wire.load import LoadFigures, MissingWrk, WireAsks, find_wrk, load
from bench.wire.parts import measure_memory, measure_parts
from bench.wire.publishing import measure_publishing, operator_keys
from bench.wire.redis import measure_redis
from bench.wire.serving import WITHOUT_LIMITS, kept_reply, serving

ENGINES = ("sqlite", "postgres")
PROCESSES = (1, 2)
OPERATORS, BATCH, BODIES = 200, 100, 10
ROUNDS, ROUND_S, PACED_S = 3, 2, 4
LOADED = 0.7
ONE_KEY_BYTES = "128000"
"""Of OPATLAS_WARM_BYTES: room for a key, and for a tenth of the hits, which are asked for in turn."""
REPLY_BYTES = 905
"""Of one hit's body, which is what Redis keeps here as a value."""
AIMS = {
    "ratio": "≥ 0.5 (stretch 0.65)",
    "p99_ratio": "≤ 3",
    "batch_keys_ratio": "≥ 8",
    "drf_ratio": "≥ 0.6",
    "cold_ratio": "≥ 0.6",
    "publishing_s.max": "≤ 1",
}


@dataclass(frozen=True)
class Seeded:
    """A filled database; ``environment`` is what its web servers run in."""

    environment: dict[str, str]
    key: str
    target: str
    operators: list[str]

    def path_of(self, operator: str) -> str:
        return f"/api/v1/operators/{operator}/best?target={self.target}&job=bench"

    @property
    def singles(self) -> WireAsks:
        return WireAsks([self.path_of(operator) for operator in self.operators])

    @property
    def batches(self) -> WireAsks:
        return WireAsks(["/api/v1/lookup"] * BODIES, [self._body(number) for number in range(BODIES)])

    def _body(self, number: int) -> str:
        some = (self.operators * 2)[number * 10 : number * 10 + BATCH]
        items = [{"key": key} for key in some]
        return json.dumps({"target": self.target, "job": "bench", "operators": items})


def main() -> None:
    record = BenchRecord("wire")
    try:
        find_wrk()
    except MissingWrk as missing:
        print(missing)
        return
    cells: dict[str, Any] = {}
    for engine in ENGINES:
        for size, count in sizes().items():
            name = f"{engine}, {size}"
            cells |= record.part(name, partial(measure_catalogue, name, engine, count))
    parts = record.part("the slow path's parts", measure_parts)
    memory = record.part("memory", measure_memory)
    redis = record.part("Redis GET", partial(measure_redis, REPLY_BYTES))
    first = next(iter(cells.values()))
    record.finish(
        {**first, "aims": AIMS, "cells": cells, "redis_get_rps": redis, "parts_us": parts, "memory": memory}
    )


def sizes() -> dict[str, int]:
    """``1k`` → 1,000; at most OPATLAS_BENCH_IMPLEMENTATIONS."""
    units = {"k": 1_000, "M": 1_000_000}
    given = {name: int(name.rstrip("kM")) * units.get(name[-1], 1) for name in conf().catalogue}
    return {name: min(count, conf().bench_implementations) for name, count in given.items()}


def measure_catalogue(name: str, engine: str, count: int) -> dict[str, Any]:
    with filled(engine, count) as seeded:
        return {f"{name}, {n} web": measure_processes(seeded, n) for n in PROCESSES}


def measure_processes(seeded: Seeded, processes: int) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="opatlas-wire-")))
        service = stack.enter_context(serving("dashboard.wsgi:application", seeded.environment, processes))
        reply = kept_reply(service + seeded.path_of(seeded.operators[0]), seeded.key, folder / "reply.json")
        bare = stack.enter_context(serving("bench.wire.bare:application", reply, processes))
        figures = measure_hits(seeded, service, bare)
        figures["publishing_s"] = measure_publishing(
            service + seeded.path_of(seeded.operators[0]), seeded.key, seeded.environment
        )
    return figures | measure_not_remembered(seeded, processes)


def measure_not_remembered(seeded: Seeded, processes: int) -> dict[str, Any]:
    with TemporaryDirectory(prefix="opatlas-wire-") as kept, ExitStack() as stack:
        slow, cold = (
            stack.enter_context(
                serving(
                    "dashboard.wsgi:application",
                    seeded.environment | {"OPATLAS_WARM_BYTES": remembered},
                    processes,
                )
            )
            for remembered in ("0", ONE_KEY_BYTES)
        )
        reply = kept_reply(slow + seeded.path_of(seeded.operators[0]), seeded.key, Path(kept) / "reply.json")
        drf = stack.enter_context(serving("bench.wire.bare:drf", reply | {"BENCH_DRF": "1"}, processes))
        rps = {
            name: one.rps
            for name, one in in_turns(seeded, {"slow": slow, "cold": cold, "drf": drf}, 1).items()
        }
    figures: dict[str, Any] = {f"{name}_rps": round(one) for name, one in rps.items()}
    ratios = {"drf_ratio": rps["slow"] / rps["drf"], "cold_ratio": rps["cold"] / rps["drf"]}
    return figures | {name: round(ratio, 3) for name, ratio in ratios.items()}


def measure_hits(seeded: Seeded, service: str, bare: str) -> dict[str, Any]:
    found = in_turns(seeded, {"bare": bare, "hit": service})
    paced = {
        name: load(url, seeded.key, seeded.singles, PACED_S, LOADED * found[name].rps)
        for name, url in (("bare", bare), ("hit", service))
    }
    load(service, seeded.key, seeded.batches, 1)
    batch = load(service, seeded.key, seeded.batches, ROUND_S)
    return {
        "bare_rps": round(found["bare"].rps),
        "hit_rps": round(found["hit"].rps),
        "ratio": round(found["hit"].rps / found["bare"].rps, 3),
        "p99_ratio": round(paced["hit"].p99_us / paced["bare"].p99_us, 2),
        "paced": {name: one._asdict() for name, one in paced.items()},
        "batch_keys_per_s": round(batch.rps * BATCH),
        "batch_keys_ratio": round(batch.rps * BATCH / found["hit"].rps, 1),
    }


def in_turns(seeded: Seeded, urls: dict[str, str], round_s: int = ROUND_S) -> dict[str, LoadFigures]:
    """Of each the round of the median rate, after one that does not count."""
    rounds: dict[str, list[LoadFigures]] = {name: [] for name in urls}
    for number in range(ROUNDS + 1):
        for name, url in urls.items():
            found = load(url, seeded.key, seeded.singles, round_s if number else 1)
            rounds[name] += [found] if number else []
    return {name: sorted(some)[len(some) // 2] for name, some in rounds.items()}


@contextmanager
def filled(engine: str, count: int) -> Iterator[Seeded]:
    from bench.lookup import manage
    from bench.servers import private_postgres

    with ExitStack() as stack:
        home = stack.enter_context(TemporaryDirectory(prefix="opatlas-wire-"))
        environment = {"OPATLAS_HOME": home, "OPATLAS_LOG": "WARNING", **WITHOUT_LIMITS}
        if engine == "postgres":
            environment["DATABASE_URL"] = stack.enter_context(private_postgres())
        manage(environment, "migrate", "--verbosity", "0")
        said = manage(environment, "-m", "bench.seed", "catalogue", "--implementations", str(count))
        told = json.loads(said.strip().splitlines()[-1])
        operators = operator_keys(environment, OPERATORS)
        yield Seeded(environment, told["key"], told["target"], operators)
