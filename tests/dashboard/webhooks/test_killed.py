"""A courier that is killed in the middle of a delivery: the message arrives again, under the same id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from standardwebhooks import Webhook

from dashboard.webhooks.models import Attempt, Delivery
from tests.dashboard.webhooks.receiver import Receiver, answering

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def courier(receiver: Receiver, settings: Any, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A real courier process over the tests' database."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
        "OPATLAS_HOME": str(home),
        "OPATLAS_SECRET_KEY": settings.SECRET_KEY,
        "OPATLAS_WEBHOOKS_ALLOW": receiver.address,
    }
    process = subprocess.Popen([sys.executable, "manage.py", "courier"], cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


def wait_for(what: Any, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_killed_between_sending_and_recording(
    endpoint: Any, receiver: Receiver, send: Any, settings: Any, tmp_path: Path
) -> None:
    message = send("a", operator="o1:5f")
    victim: list[subprocess.Popen[bytes]] = []

    def take_and_kill(handler: BaseHTTPRequestHandler) -> None:
        os.kill(victim[0].pid, signal.SIGKILL)
        victim[0].wait()

    receiver.answer = take_and_kill
    with courier(receiver, settings, tmp_path) as process:
        victim.append(process)
        wait_for(lambda: process.poll() is not None)
    assert process.returncode == -signal.SIGKILL
    row = Delivery.objects.get()
    assert (row.state, row.tries) == ("pending", 0) and Attempt.objects.count() == 0
    assert row.claimed_until is not None  # it is still the dead one's, for a minute at most

    receiver.answer = answering(200)
    # What time would do; the leases of the courier and of the delivery run out by the database's clock.
    Delivery.objects.update(claimed_until=F("began_at") - timedelta(hours=1))
    from tuning.models import Lease

    Lease.objects.all().delete()
    with courier(receiver, settings, tmp_path):
        wait_for(lambda: Delivery.objects.get().state == "delivered")
    assert len(receiver.got) == 2 and set(receiver.ids) == {message.public_id}
    assert receiver.got[0].body == receiver.got[1].body
    for got in receiver.got:
        Webhook(endpoint.secret).verify(got.body, got.headers)
