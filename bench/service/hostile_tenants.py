"""Tenants that upload and submit what does harm, and what the others notice of it.

``python -m bench.service.hostile_tenants NUMBER``: makes so many in an empty database, and prints their keys
as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.lookup import first_result, idle, manage, rows
from dashboard.run.stack import Stack
from dashboard.run.statistics import percentile
from opatlas.client import RestClient
from opatlas.identity import Operator, parse_operator

UPLOADERS = 8
PROBE_S = 0.02
BOMBS = 5
NODES = 60_000
LOOKUPS = 4
COMPILE_S = 10.0
"""Of one build while the bombs are evaluated (OPATLAS_BUILD_S): a build runs into it."""


@contextmanager
def tenants(number: int, **environment: str) -> Iterator[tuple[Stack, list[str]]]:
    """A fresh service with one warm worker, and a key of each of so many tenants, and of the host."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opatlas-bench-")))
        environment = {"OPATLAS_HOME": str(home), "OPATLAS_LOG": "WARNING", **environment}
        manage(environment, "migrate", "--verbosity", "0")
        keys = json.loads(
            manage(environment, "-m", "bench.service.hostile_tenants", str(number)).splitlines()[-1]
        )
        service = stack.enter_context(Stack(environment, logs=home / "logs"))
        with RestClient(service.url, keys[0], job="bench") as client:
            service.wait_for(
                lambda: any(one["warm"] for one in rows(client, "workers")), 180, "a warm worker"
            )
            service.wait_for(lambda: idle(client), 180, "an idle worker")
        yield service, keys


def measure_health(budget_s: float) -> dict[str, Any]:
    """/healthz by turns idle and under uploads, half of the time each."""
    with tenants(UPLOADERS) as (service, keys):
        idle_ms = probed_ms(service.url, budget_s / 2)
        answers: Counter[int] = Counter()
        enough = threading.Event()
        threads = [
            threading.Thread(target=upload_on, args=(service.url, key, bomb(at), enough, answers))
            for at, key in enumerate(keys[:UPLOADERS])
        ]
        for thread in threads:
            thread.start()
        try:
            under_ms = probed_ms(service.url, budget_s / 2)
        finally:
            enough.set()
            for thread in threads:
                thread.join()
    return {
        "health_p99_ms": {"idle": p99(idle_ms), "under_uploads": p99(under_ms)},
        "health_most_ms": {"idle": round(max(idle_ms), 1), "under_uploads": round(max(under_ms), 1)},
        "uploads_answered": {str(status): count for status, count in sorted(answers.items())},
    }


def p99(times_ms: list[float]) -> float:
    return round(percentile(times_ms, 99), 1)


def probed_ms(url: str, seconds: float) -> list[float]:
    """Each answer of /healthz, asked for one after the other; one that does not come is the time waited."""
    times, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=30) as answer:
                answer.read()
        except OSError as error:
            print(f"/healthz: {error}", flush=True)
        times.append((time.perf_counter() - began) * 1e3)
        time.sleep(PROBE_S)
    return times


def upload_on(url: str, key: str, data: bytes, enough: threading.Event, answers: Counter[int]) -> None:
    """Upload the same again and again, whatever is answered."""
    kind = "application/json" if data[:1] == b"[" else "application/octet-stream"
    headers = {"Authorization": f"Bearer {key}", "Content-Type": kind}
    while not enough.is_set():
        request = urllib.request.Request(f"{url}/api/v1/models/?name=bomb", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answers[answer.status] += 1
        except urllib.error.HTTPError as error:
            with error:
                answers[error.code] += 1
        except OSError:
            answers[0] += 1
        enough.wait(0.05)


def bomb(number: int) -> bytes:
    """By turns: a long chain of nodes, deep JSON, many records, and zeros."""
    if number % 4 == 1:
        return b"[" * (1 << 20)
    if number % 4 == 2:
        return b"[" + b"{}," * 300_000 + b"{}]"
    if number % 4 == 3:
        return b"\x08" + bytes(8 << 20)
    return chain_of(NODES)


def chain_of(count: int) -> bytes:
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Relu", [f"v{at}"], [f"v{at + 1}"]) for at in range(count)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


def measure_foreign_delay(budget_s: float) -> dict[str, Any]:
    """First results of one tenant's lookups, one after the other, alone and while another's kernels build."""
    with tenants(2, OPATLAS_BUILD_S=str(COMPILE_S)) as (service, keys):
        attacker, other, host = (RestClient(service.url, key, job="bench") for key in keys)
        with attacker, other, host:
            alone_s = []
            for at in range(LOOKUPS):
                alone_s.append(first_s(service, other, relu(100 + at)))
                end_explorations(host)
                service.wait_for(lambda: idle(host), 60, "an idle worker")
            why_not = submit_bombs(attacker, relu(100))
            if why_not:
                return {"foreign_delay_s": None, "foreign_delay_why_not": why_not}
            service.wait_for(lambda: evaluating(attacker), 60, "a bomb that is built")
            until, during_s = time.monotonic() + budget_s, []
            while evaluating(attacker) and time.monotonic() < until:
                during_s.append(first_s(service, other, relu(1000 + len(during_s))))
                end_explorations(host)
    delay_s = max(during_s) - max(alone_s)
    return {
        "foreign_delay_s": round(delay_s, 2),
        "foreign": {"alone_s": alone_s, "during_s": during_s, "bombs": BOMBS, "slice_s": COMPILE_S},
    }


def end_explorations(host: RestClient) -> None:
    """Of what has its first result: what would follow is not measured here."""
    for row in rows(host, "explorations", state="queued,running"):
        host.call("POST", f"/api/v1/explorations/{row['id']}/discard", {"reason": "bench"})


def relu(size: int) -> Operator:
    return parse_operator({"op": "Relu", "inputs": [{"dtype": "float32", "shape": [size]}]})


def first_s(service: Stack, client: RestClient, operator: Operator) -> float:
    client.lookup([operator])
    found = first_result(client, service, operator)
    if found is None:
        raise RuntimeError(f"{operator.key} has no first result.")
    return round(found, 2)


def submit_bombs(client: RestClient, example: Operator) -> str:
    """Kernels whose compiler is busy until it is killed; why they cannot be built here, if so."""
    if all(worker["tier"] != "T2" for worker in rows(client, "workers")):
        return "Submitted code is not built here: the worker has no sandbox of tier T2."
    growing = "\n".join(f"#define M{at + 1} {f'M{at} ' * 10}" for at in range(10))
    about = {"language": "c", "pattern": {"op": "Relu"}, "flags": [], "author": "bench", "licence": "MIT"}
    for number in range(BOMBS):
        body = f"#define M0 ;\n{growing}\nint opatlas_run(void) {{ M10 return {number}; }}\n"
        source = f'#include "opatlas_operator.h"\n{body}'
        sent = about | {"name": f"bomb-{number}", "source": source, "example": example.key}
        client.call("POST", "/api/v1/kernels/", sent)
    return ""


def evaluating(client: RestClient) -> bool:
    """Whether one of them is built, or waits to be."""
    return any(one["state"] in ("submitted", "building") for one in rows(client, "kernels"))


def _make(number: int) -> list[str]:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django

    django.setup()
    from django.contrib.auth.models import User

    from catalog.models import Membership, Organisation, Role
    from catalog.people.keys import SCOPES, create_api_key
    from catalog.registry import default_organisation

    keys, tenants = [], [Organisation.objects.create(name=f"Tenant {at}") for at in range(number)]
    for at, organisation in enumerate([*tenants, default_organisation()]):
        user = User.objects.create_user(f"tenant-{at}")
        Membership.objects.create(user=user, organisation=organisation, role=Role.ADMIN)
        keys.append(create_api_key(organisation, "bench", list(SCOPES), user=user)[1])
    return keys


if __name__ == "__main__":
    print(json.dumps(_make(int(sys.argv[1]))))
