"""The whole service over REST: a web server, two real workers, PostgreSQL and Redis; one worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboard.run.stack import ROOT, Stack
from opatlas.client import RestClient
from opatlas.identity import Operator, parse_operator
from opatlas.load import load

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(600)]


def relu(rows: int) -> Operator:
    return parse_operator({"op": "Relu", "inputs": [{"shape": [rows, 64], "dtype": "float32"}]})


def manage(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "dashboard.settings", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 120) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)
    return found


def test_two_workers_one_killed_and_every_miss_becomes_a_hit(
    tmp_path: Path, private_postgres: Any, private_redis: Any
) -> None:
    environment = {
        "OPATLAS_HOME": str(tmp_path / "home"),
        "OPATLAS_LOCK": str(tmp_path / "machine.lock"),
        "DATABASE_URL": private_postgres.new_database(migrated=True),
        "BROKER_URL": private_redis.new_url(),
        "OPATLAS_TUNING": "0",
        "OPATLAS_LEASE_S": "5",
    }
    key = manage(environment, "create_api_key", "test", "--scopes", "lookup").strip()
    operators = [relu(rows) for rows in (3, 5, 7)]
    # Without compilers, whose start takes two cores half a minute and is tests/docs/'s.
    app, logs = "tests.tuning.library_worker", tmp_path / "logs"
    with Stack(environment, workers=2, logs=logs, app=app) as stack:
        assert {process.name for process in stack.processes} == {"web", "worker0", "worker1", "courier"}
        with RestClient(stack.url, key, job="whole service") as client:

            def listing(resource: str) -> list[dict[str, Any]]:
                return list(client.call("GET", f"/api/v1/{resource}/?limit=200")["results"])

            def held() -> list[dict[str, Any]]:
                return [e for e in listing("explorations") if e["state"] == "running"]

            wait_for(lambda: sum(worker["warm"] for worker in listing("workers")) == 2, "two warm workers")
            assert {answer.status for answer in client.lookup(operators)} == {"miss"}
            [busy, *_] = wait_for(held, "work")
            victim = next(one for one in stack.processes if one.name in busy["lease_owner"])
            victim.popen.send_signal(signal.SIGKILL)
            victim.kill_group()
            stack.processes.remove(victim)

            wait_for(lambda: all(a.hit for a in client.lookup([o.key for o in operators])), "every hit")
            wait_for(lambda: not any(victim.name in e["lease_owner"] for e in held()), "its work to go on")
            assert len(listing("explorations")) == len(operators)  # asked often, explored once

            # Nothing was explored twice at the same time: one claim's trials end before the next one's begin.
            claims: dict[int, dict[int, list[str]]] = {}
            for trial in listing("trials"):
                if trial["status"] != "unsupported":
                    moments = claims.setdefault(trial["exploration"], {}).setdefault(trial["fence"], [])
                    moments += [trial["started_at"], trial["created_at"]]
            assert len(claims) == len(operators)
            for by_fence in claims.values():
                spans = [(min(moments), max(moments)) for _, moments in sorted(by_fence.items())]
                for (_, ended), (started, _) in pairwise(spans):
                    assert ended <= started

            [answer] = client.lookup([operators[0].key])
            assert answer.best is not None
            manifest = client.fetch(answer.best, tmp_path / "kernel")
    kernel = load(manifest, tmp_path / "kernel")
    x = np.random.default_rng(0).standard_normal((3, 64), dtype=np.float32)
    run = kernel.bind({0: x})
    run()
    np.testing.assert_array_equal(run.outputs()[0], np.maximum(x, 0))
    kernel.close()
