"""How fast a lookup is, and how soon a miss becomes a hit.

- ResNet-50's 56 distinct operators in one REST batch (keys only, connection kept open, JSON made and read on
  the client's side included) against TVM's JSON database answering the same in process, in turns, at
  1k and 100k records.
- The catalogue at 1k against 1M implementations, in turns, on SQLite and on PostgreSQL.
- Seconds from a miss to its first published result: alone on an idle warm worker, and all in one batch.

``SAMPLE=file.json`` takes other operators; OPATLAS_BENCH_IMPLEMENTATIONS (1M) is the most that there are.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.conf import conf
from bench.contest.sample import read_sample, sample_path
from bench.record import BenchRecord, spread
from bench.servers import private_postgres
from bench.tvm_database import TvmDatabase
from dashboard.run.stack import ROOT, Stack
from dashboard.run.statistics import percentile
from opatlas.client import RestClient
from opatlas.graph import extract
from opatlas.identity import Operator
from tuning.graph import sample_model

SIZES = {"1k": 1_000, "100k": 100_000}
FLAT_SIZES = {"1k": 1_000, "1M": 1_000_000}
ROUNDS = 40
FLAT_ROUNDS = 200


def main() -> None:
    record = BenchRecord("lookup")
    operators = asked()
    against_tvm = {
        size: record.part(f"against TVM, {size}", partial(measure_against_tvm, operators, capped(count)))
        for size, count in SIZES.items()
    }
    flat = {
        engine: record.part(f"flatness, {engine}", partial(measure_flatness, operators, engine))
        for engine in ("sqlite", "postgres")
    }
    single = record.part("seconds, one miss at a time", lambda: measure_single(operators))
    batch = record.part("seconds, all in one batch", lambda: measure_batch(operators))
    record.finish(
        {
            "operators": len(operators),
            "tvm_ms": {size: part["tvm"]["median"] for size, part in against_tvm.items()},
            "rest_ms": {size: part["rest"]["median"] for size, part in against_tvm.items()},
            "ratio": {size: part["ratio"] for size, part in against_tvm.items()},
            "flatness_sqlite": flat["sqlite"]["ratio"],
            "flatness_postgres": flat["postgres"]["ratio"],
            "seconds_single": single["median"],
            "seconds_to_first_hit": {"p50": batch["p50"], "p95": batch["p95"]},
            "answered": {"single": single["answered"], "batch": batch["answered"], "total": len(operators)},
            "spread": {"against_tvm": against_tvm, "flatness": flat, "single": single, "batch": batch},
        }
    )


def asked() -> list[Operator]:
    if conf().sample:
        return [call.operator for call in read_sample(sample_path(conf().sample))]
    return [extracted.operator for extracted in extract(sample_model("resnet50")).operators]


def capped(count: int) -> int:
    return min(count, conf().bench_implementations)


def measure_against_tvm(operators: Sequence[Operator], count: int) -> dict[str, Any]:
    """Both sides in turns; the ratio is of the medians."""
    with seeded(operators, count) as catalogue, tempfile.TemporaryDirectory() as folder:
        database = TvmDatabase(Path(folder), operators, count)
        tvm, rest = [], []
        for _ in range(3):
            database.query_all_ms(), catalogue.batch_ms()
        for _ in range(ROUNDS):
            tvm.append(database.query_all_ms())
            rest.append(catalogue.batch_ms())
    return {
        "tvm": spread(tvm),
        "rest": spread(rest),
        "ratio": round(statistics.median(tvm) / statistics.median(rest), 2),
    }


def measure_flatness(operators: Sequence[Operator], engine: str) -> dict[str, Any]:
    """The same batch against a small and a large catalogue, in turns; the ratio is of the medians."""
    with ExitStack() as stack:
        small, large = (
            stack.enter_context(seeded(operators, capped(count), engine)) for count in FLAT_SIZES.values()
        )
        times: dict[str, list[float]] = {name: [] for name in FLAT_SIZES}
        for number in range(FLAT_ROUNDS + 20):
            for name, catalogue in zip(FLAT_SIZES, (small, large), strict=True):
                took = catalogue.batch_ms()
                if number >= 20:
                    times[name].append(took)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        **{name: spread(values) for name, values in times.items()},
        "ratio": round(medians["1M"] / medians["1k"], 3),
    }


@dataclass
class ServedCatalogue:
    """A running web server over a filled database."""

    client: RestClient
    url: str
    key: str
    keys: list[str]
    environment: dict[str, str]

    def batch_ms(self) -> float:
        """Time of one batch lookup of all keys, as a client sees it."""
        started = time.perf_counter()
        answers = self.client.lookup(self.keys)
        took = (time.perf_counter() - started) * 1e3
        assert all(answer.hit for answer in answers)
        return took


@contextmanager
def seeded(operators: Sequence[Operator], count: int, engine: str = "sqlite") -> Iterator[ServedCatalogue]:
    """A service whose catalogue holds ``count`` synthetic implementations and the given operators."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opatlas-bench-")))
        environment = {"OPATLAS_HOME": str(home), "OPATLAS_LOG": "WARNING"}
        if engine == "postgres":
            environment["DATABASE_URL"] = stack.enter_context(private_postgres())
        (home / "operators.json").write_text(json.dumps([operator.to_json() for operator in operators]))
        manage(environment, "migrate", "--verbosity", "0")
        said = manage(
            environment,
            "-m",
            "bench.seed",
            "catalogue",
            "--implementations",
            str(count),
            "--operators",
            str(home / "operators.json"),
        )
        key = json.loads(said.strip().splitlines()[-1])["key"]
        web = stack.enter_context(Stack(environment, workers=0, logs=home / "logs"))
        client = stack.enter_context(RestClient(web.url, key, job="bench"))
        yield ServedCatalogue(client, web.url, key, [operator.key for operator in operators], environment)


def manage(environment: dict[str, str], *arguments: str) -> str:
    """Run a management command (or ``-m`` a module) in a process of its own; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *(() if arguments[0] == "-m" else ("manage.py",)), *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


@contextmanager
def exploring() -> Iterator[tuple[Stack, RestClient]]:
    """A fresh service with one warm worker, as ``make run`` starts it."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opatlas-bench-")))
        environment = {"OPATLAS_HOME": str(home), "OPATLAS_LOG": "WARNING"}
        manage(environment, "migrate", "--verbosity", "0")
        said = manage(environment, "create_api_key", "bench", "--scopes", "lookup", "operate")
        key = next(word for word in said.split() if word.startswith("opk_"))
        service = stack.enter_context(Stack(environment, logs=home / "logs"))
        client = stack.enter_context(RestClient(service.url, key, job="bench"))
        service.wait_for(
            lambda: any(worker["warm"] for worker in rows(client, "workers")), 180, "a warm worker"
        )
        yield service, client


def measure_single(operators: Sequence[Operator]) -> dict[str, Any]:
    """One operator at a time on an idle worker: from the lookup to the first published result.

    What is left of an operator's exploration is discarded before the next one is asked for.
    """
    seconds = []
    with exploring() as (service, client):
        for operator in operators:
            client.lookup([operator])
            row = first_result(client, service, operator)
            if row is not None:
                seconds.append(row)
            for exploration in rows(client, "explorations", state="queued,running"):
                client.call("POST", f"/api/v1/explorations/{exploration['id']}/discard", {"reason": "bench"})
            service.wait_for(lambda: idle(client), 60, "an idle worker")
    return {**spread(seconds), "answered": len(seconds), "total": len(operators)}


def measure_batch(operators: Sequence[Operator]) -> dict[str, Any]:
    """All operators in one batch on one warm worker: from the misses' arrival to each one's first result."""
    with exploring() as (service, client):
        client.lookup(operators)
        service.wait_for(
            lambda: all(
                answer.hit or answer.state in ("unsupported", "failed")
                for answer in client.lookup([operator.key for operator in operators])
            ),
            300,
            "all first results",
        )
        seconds = [elapsed_s(row) for row in rows(client, "explorations") if row["first_result_at"]]
    return {
        "p50": round(percentile(seconds, 50), 2),
        "p95": round(percentile(seconds, 95), 2),
        "answered": len(seconds),
        "total": len(operators),
    }


def idle(client: RestClient) -> bool:
    """Whether no worker is at work: one whose exploration was discarded ends its step first."""
    return all(not worker["doing"] for worker in rows(client, "workers"))


def first_result(client: RestClient, service: Stack, operator: Operator) -> float | None:
    """Seconds from asked to first published for one operator; None when nothing was published."""
    found: list[float | None] = []

    def ended() -> bool:
        for row in rows(client, "explorations", operator=operator.key):
            if row["first_result_at"]:
                found.append(elapsed_s(row))
            elif row["state"] not in ("queued", "running"):
                found.append(None)
        return bool(found)

    service.wait_for(ended, 120, f"a result for {operator.key}")
    return found[0]


def elapsed_s(row: dict[str, Any]) -> float:
    from datetime import datetime

    asked, first = (datetime.fromisoformat(row[name]) for name in ("asked_at", "first_result_at"))
    return (first - asked).total_seconds()


def rows(client: RestClient, resource: str, **filters: str) -> list[dict[str, Any]]:
    """Every row of a listing, page after page."""
    from urllib.parse import urlencode, urlsplit

    found: list[dict[str, Any]] = []
    path = f"/api/v1/{resource}/?{urlencode({**filters, 'limit': '200'})}"
    while path:
        page = client.call("GET", path)
        found += page["results"]
        following = urlsplit(page.get("next") or "")
        path = f"{following.path}?{following.query}" if following.path else ""
    return found
