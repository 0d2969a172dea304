"""What a job's client costs: importing it, the first hit of a process, and hits from memory and disk.

Beside what nobody undercuts (a dict's ``get``, one SELECT by primary key through Python's sqlite3), beside
TVM's tuning database asked in process at 100k records, all in one run; FlashInfer's published 9 to 12 µs for
its dispatch are on other hardware. One request for all operators of a model is held against one for a single
one.

The whole open logs (``OPATLAS_WORKLOADS``; where they do not lie, the same operators) are looked up through
one cache by eight processes at once, and each answer is held against the service's own.

``SAMPLE=file.json`` takes other operators than ResNet-50's. What predictors are worth is
:mod:`bench.prefetch`'s.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.lookup import asked, capped, seeded
from bench.prefetch import measure_prefetch
from bench.record import BenchRecord, spread
from bench.shared_cache import measure_shared
from bench.tvm_database import TvmDatabase
from opatlas.client import Client, RestClient
from opatlas.identity import Operator, parse_operator
from tuning.conf import conf as tuning_conf
from tuning.graph.operator_list import extract_list

STARTS = 15
BATCHES, CALLS = 60, 500
REQUESTS = 40
RECORDS = 100_000
LEFT, RIGHT = np.ones((64, 256), np.float32), np.ones((256, 128), np.float32)
FLASHINFER_US = "9-12, as published"


def main() -> None:
    record = BenchRecord("client")
    operators = [*asked(), product()]
    hits = record.part("hits", lambda: measure_hits(operators))
    starts = record.part("starts", lambda: measure_starts(operators))
    requests = record.part("requests", lambda: measure_requests(operators))
    tvm = record.part("TVM", lambda: measure_tvm(operators))
    shared = record.part("one cache, eight processes", lambda: measure_logs(operators))
    prefetch = record.part("prefetch", measure_prefetch)
    record.finish(
        {
            **{name: part["median"] for name, part in hits.items()},
            **{name: part["median"] for name, part in starts.items()},
            "one_request_ratio": requests["ratio"],
            "tvm_query_us": tvm["median"],
            "flashinfer_us": FLASHINFER_US,
            "shared": shared,
            "prefetch": prefetch,
            "spread": {"hits": hits, "starts": starts, "requests": requests, "tvm": tvm},
        }
    )


def product() -> Operator:
    values = [{"shape": list(one.shape), "dtype": "float32"} for one in (LEFT, RIGHT)]
    return parse_operator({"op": "MatMul", "inputs": values})


def measure_hits(operators: Sequence[Operator]) -> dict[str, Any]:
    """Microseconds of one hit, each way in turns."""
    with (
        seeded(operators, 1000) as catalogue,
        tempfile.TemporaryDirectory() as folder,
        Client(catalogue.url, catalogue.key, cache=folder, timeout_s=30) as client,
    ):
        keys = [operator.key for operator in operators]
        assert all(client.lookup_all(operators)), "all of them hit"
        key, handle = product().key, client.handle(product())
        plain = dict.fromkeys(keys, object())
        bare = sqlite3.connect(Path(folder) / "entries-1.sqlite")
        by_key = "SELECT body FROM entries WHERE key = ? AND place = (SELECT place FROM entries LIMIT 1)"

        def from_disk() -> None:
            client._memory.forget()
            assert client.lookup(key).source == "cache"

        ways: dict[str, Callable[[], Any]] = {
            "memory_hit_us": handle,
            "key_hit_us": lambda: client.lookup(key),
            "tensor_hit_us": lambda: client.lookup("MatMul", LEFT, RIGHT),
            "sqlite_hit_us": from_disk,
            "dict_get_us": lambda: plain.get(key),
            "sqlite_get_us": lambda: bare.execute(by_key, (key,)).fetchone(),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(BATCHES + 5):
            for name, way in ways.items():
                began = time.perf_counter()
                for _ in range(CALLS):
                    way()
                if number >= 5:
                    times[name].append((time.perf_counter() - began) / CALLS * 1e6)
        bare.close()
        assert client.counts["requests"] == 1
    return {name: spread(values) for name, values in times.items()}


def measure_starts(operators: Sequence[Operator]) -> dict[str, Any]:
    """Milliseconds beyond a process that imports NumPy and does nothing, each kind of start in turns."""
    # pip compiles what it installs; here the first start does.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with seeded(operators, 1000) as catalogue, tempfile.TemporaryDirectory() as folder:
        imports = "import numpy; from opatlas.client import Client"
        opened = f"{imports}; client = Client({catalogue.url!r}, {catalogue.key!r}, cache={folder!r})"
        arrays = f"numpy.ones({LEFT.shape}, 'float32'), numpy.ones({RIGHT.shape}, 'float32')"
        scripts = {
            "numpy": "import numpy",
            "import_ms": imports,
            "first_key_hit_ms": f"{opened}; assert client.lookup({product().key!r}).source == 'cache'",
            "first_tensor_hit_ms": f"{opened}; assert client.lookup('MatMul', {arrays}).source == 'cache'",
        }
        with Client(catalogue.url, catalogue.key, cache=folder, timeout_s=30) as client:
            client.lookup("MatMul", LEFT, RIGHT)
        times: dict[str, list[float]] = {name: [] for name in scripts}
        for number in range(STARTS + 2):
            for name, script in scripts.items():
                began = time.perf_counter()
                subprocess.run([sys.executable, "-c", script], check=True, env=environment)
                if number >= 2:
                    times[name].append((time.perf_counter() - began) * 1e3)
    beyond = {
        name: [one - base for one, base in zip(values, times["numpy"], strict=True)]
        for name, values in times.items()
        if name != "numpy"
    }
    return {name: spread(values) for name, values in beyond.items()} | {"numpy_ms": spread(times["numpy"])}


def measure_requests(operators: Sequence[Operator]) -> dict[str, Any]:
    """Milliseconds of a request for one operator, and for all of a model, without manifests; in turns."""
    with seeded(operators, 1000) as catalogue:
        rest: RestClient = catalogue.client
        one, *others = [{"key": operator.key, "graph": operator.to_json()} for operator in operators]
        times: dict[str, list[float]] = {"single": [], "model": []}
        for number in range(REQUESTS + 5):
            for name, related in (("single", []), ("model", others)):
                began = time.perf_counter()
                rest.ask([one], related=related, include=["related"])
                if number >= 5:
                    times[name].append((time.perf_counter() - began) * 1e3)
    ratio = statistics.median(times["model"]) / statistics.median(times["single"])
    return {name: spread(values) for name, values in times.items()} | {
        "operators": len(operators),
        "ratio": round(ratio, 2),
    }


def measure_logs(otherwise: Sequence[Operator]) -> dict[str, Any]:
    """Every answer of every process is the service's in every field; how many came from where."""
    logs = tuning_conf().workloads / "oplogs_merged.json"
    found = [one.operator for one in extract_list(logs.read_bytes()).operators] if logs.exists() else []
    operators = list({one.key: one for one in found or otherwise}.values())
    with seeded(operators, 1000 + 4 * len(operators)) as catalogue:
        return measure_shared(catalogue.url, catalogue.key, operators)


def measure_tvm(operators: Sequence[Operator]) -> dict[str, Any]:
    """Microseconds of one query of TVM's database."""
    with tempfile.TemporaryDirectory() as folder:
        database = TvmDatabase(Path(folder), operators, capped(RECORDS))
        database.query_all_ms()
        return spread([database.query_all_ms() * 1e3 / len(operators) for _ in range(REQUESTS)])
