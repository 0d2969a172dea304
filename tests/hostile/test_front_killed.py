"""A real web process under load, most of it answered in front of Django: what is published and revoked is
seen within a second, and hits served are usage rows to the unit after SIGKILL."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any, NamedTuple

import pytest

from dashboard.run.stack import Stack
from tests.catalog import making
from tests.hostile.conftest import by_day_on, deploy, deployment  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.timing]

THREADS, WITHIN_S = 4, 1.0
BETWEEN_S = 0.002
"""Between an answer and the next question: some thousand answers tell it, and each is a row to be drained."""
PATH = f"/api/v1/operators/{making.relu(64).key}/best?target={making.TARGET.key}&job="

# Says which implementation it was about, and on the machine's clock when that was begun and committed.
PUBLISH = """
import time, django; django.setup()
began = time.monotonic()
from catalog.best.publishing import publish
from catalog.registry import register_operator, register_setting, register_target
from tests.catalog import making
place = dict(operator=register_operator(making.relu(64)), target=register_target(making.TARGET),
             setting=register_setting(making.SETTING))
row = publish(making.new_result(place, "{route}", {ratio})).implementation
print(row.pk, began, time.monotonic())
"""
WITHDRAW = """
import time, django; django.setup()
from catalog.best.withdrawing import withdraw
from catalog.models import Implementation
began = time.monotonic()
withdraw(Implementation.objects.filter(pk={number}), "for the test")
print({number}, began, time.monotonic())
"""
REVOKE_KEY = """
import time, django; django.setup()
from catalog.people.keys import revoke_api_key
began = time.monotonic()
revoke_api_key("{prefix}")
print(0, began, time.monotonic())
"""


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


@by_day_on("postgres")
def test_no_answer_is_older_than_a_second_and_each_has_its_row(deployment: Any, tmp_path: Any) -> None:  # noqa: F811
    def done(script: str, **words: Any) -> tuple[int, float, float]:
        number, began, ended = deployment.run("-c", script.format(**words)).split()[-3:]
        return int(number), float(began), float(ended)

    deployment.environment |= {"OPATLAS_RATE_LOOKUP": "off", "OPATLAS_RATE_ADDRESS": "off"}
    deployment.environment["OPATLAS_RATE_REFUSED"] = "off"
    first, *_ = done(PUBLISH, route="eager", ratio=1.0)
    key, other = (deployment.manage("create_api_key", name).strip().split()[-1] for name in ("a", "b"))
    with Stack(deployment.environment, workers=0, courier=False, logs=tmp_path / "logs") as stack:
        jobs = [Job(stack.port, key, f"killed-{number}") for number in range(THREADS)]
        refused = Job(stack.port, other, "refused")
        for job in (*jobs, refused):
            job.start()
        stack.wait_for(lambda: sum(len(job.seen) for job in jobs) > 500, 60, "answers")
        second, _, published_at = done(PUBLISH, route="onednn", ratio=2.0)
        time.sleep(WITHIN_S)  # so that there are answers which have to name it
        _, withdrawing_at, withdrawn_at = done(WITHDRAW, number=second)
        *_, closed_at = done(REVOKE_KEY, prefix=other.split("_")[1])
        time.sleep(WITHIN_S + 0.5)
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
