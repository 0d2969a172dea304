"""A real web process under load, most of it answered in front of Django: what is published and revoked is
seen within a second, and hits served are usage rows to the unit after SIGKILL."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

import pytest

from dashboard.run.stack import Stack
from tests.catalog import making
from tests.databases import ROOT
from tests.hostile.conftest import by_day_on, deploy, deployment  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.timing]

THREADS, WITHIN_S = 4, 1.0
BETWEEN_S = 0.002
"""Between an answer and the next question: some thousand answers tell it, and each is a row to be drained."""
PATH = f"/api/v1/operators/{making.relu(64).key}/best?target={making.TARGET.key}&job="

# Does what it is told, a line each, and answers what came of it, and when by the machine's clock that was
# begun and committed.
OPERATING = """
import json, sys, time, django; django.setup()
from catalog.best.publishing import publish
from catalog.best.withdrawing import withdraw
from catalog.models import Implementation
from catalog.people.keys import create_api_key, revoke_api_key
from catalog.registry import default_organisation, register_operator, register_setting, register_target
from tests.catalog import making
from tests.databases import ROOT

def published(route, ratio):
    place = dict(operator=register_operator(making.relu(64)), target=register_target(making.TARGET),
                 setting=register_setting(making.SETTING))
    return publish(making.new_result(place, route, ratio)).implementation.pk

def withdrawn(number):
    withdraw(Implementation.objects.filter(pk=number), "for the test")

def revoked(prefix):
    revoke_api_key(prefix)

def key(name):
    return create_api_key(default_organisation(), name, ["lookup"])[1]

for line in sys.stdin:
    what, *given = json.loads(line)
    began = time.monotonic()
    done = {"published": published, "withdrawn": withdrawn, "key": key, "revoked": revoked}[what](*given)
    print(json.dumps([done, began, time.monotonic()]), flush=True)
"""


class Operator:
    """Somebody who changes the catalogue beside the web server."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OPERATING], cwd=ROOT, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate(timeout=60)

    def done(self, what: str, *given: Any) -> Any:
        """What came of it, when it was begun, and when committed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, *given]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class Seen(NamedTuple):
    asked_at: float
    answered_at: float
    status: int
    implementation: int


class Job(threading.Thread):
    """Asks over one connection until the server is gone, each under a name of its own."""

    def __init__(self, port: int, key: str, called: str) -> None:
        super().__init__()
        self._port, self._key, self.called = port, key, called
        self.seen: list[Seen] = []
        self.asked = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while True:
            asked_at = time.monotonic()
            try:
                self.asked += 1
                connection.request(
                    "GET", PATH + self.called, headers={"Authorization": f"Bearer {self._key}"}
                )
                answer = connection.getresponse()
                said = json.loads(answer.read())
            except (OSError, http.client.HTTPException, ValueError):
                return
            number = said.get("best", {}).get("implementation", 0)
            self.seen.append(Seen(asked_at, time.monotonic(), answer.status, number))
            time.sleep(BETWEEN_S)


def asked_after(stack: Stack, jobs: list[Job], moment: float) -> None:
    """Waits until each has an answer to what it asked then."""
    stack.wait_for(lambda: all(job.seen[-1].asked_at > moment for job in jobs), 60, "answers")


@by_day_on("postgres")
def test_no_answer_is_older_than_a_second_and_each_has_its_row(deployment: Any, tmp_path: Any) -> None:  # noqa: F811
    deployment.environment |= {"OPATLAS_RATE_LOOKUP": "off", "OPATLAS_RATE_ADDRESS": "off"}
    deployment.environment["OPATLAS_RATE_REFUSED"] = "off"
    with (
        Operator(deployment.environment) as operator,
        Stack(deployment.environment, workers=0, courier=False, logs=tmp_path / "logs") as stack,
    ):
        first, *_ = operator.done("published", "eager", 1.0)
        (key, *_), (other, *_) = (operator.done("key", name) for name in ("a", "b"))
        jobs = [Job(stack.port, key, f"killed-{number}") for number in range(THREADS)]
        refused = Job(stack.port, other, "refused")
        for job in (*jobs, refused):
            job.start()
        stack.wait_for(lambda: sum(len(job.seen) for job in jobs) > 500, 60, "answers")
        second, _, published_at = operator.done("published", "onednn", 2.0)
        asked_after(stack, jobs, published_at + WITHIN_S)  # answers which have to name it
        _, withdrawing_at, withdrawn_at = operator.done("withdrawn", second)
        *_, closed_at = operator.done("revoked", other.split("_")[1])
        asked_after(stack, jobs, withdrawn_at + WITHIN_S)
        asked_after(stack, [refused], closed_at + WITHIN_S)
        stack.processes[0].kill_group()
        for job in (*jobs, refused):
            job.join()

    seen = [one for job in jobs for one in job.seen]
    assert {one.status for one in seen} == {200}
    named = [
        one for one in seen if published_at + WITHIN_S < one.asked_at and one.answered_at < withdrawing_at
    ]
    assert {one.implementation for one in named} == {second}
    after = {one.implementation for one in seen if one.asked_at > withdrawn_at + WITHIN_S}
    assert after == {first}, "the next best of those that are not revoked"
    shut = {one.status for one in refused.seen if one.asked_at > closed_at + WITHIN_S}
    assert shut == {401} and refused.seen[0].status == 200

    deployment.manage("drain_journal")
    rows = dict(
        deployment.query(
            "SELECT job.name, COUNT(*) FROM catalog_usage served "
            "JOIN catalog_job job ON job.id = served.job_id GROUP BY job.name"
        )
    )
    for job in (*jobs, refused):
        received = sum(one.status == 200 for one in job.seen)
        # To the unit, of each client: a row for each answer, and one for the answer that was in the journal
        # and never left, which is of the one request that it had sent and heard nothing of.
        assert rows[job.called] - received in range(job.asked - len(job.seen) + 1), job.called
        assert job.asked - len(job.seen) <= 1
    ((tallied,),) = deployment.query("SELECT SUM(hits) FROM catalog_lookuptally")
    assert tallied == sum(rows.values())
