"""Each process comes back after SIGKILL, and how long that took is said."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.databases import ROOT

SCRIPT = """
import json
from bench.service.restarts import measured
print(json.dumps(measured(2, "tests.tuning.fake_worker", OPATLAS_LEADER_LEASE_S="1.5", OPATLAS_SERVED_S="3")))
"""


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.nightly
def test_every_process_comes_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {"web", "worker", "courier", "leader"}
    for kind, seconds in found.items():
        assert 0 < seconds["median"] < 90 and seconds["samples"] == 2, kind
