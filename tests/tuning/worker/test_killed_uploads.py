"""A real worker that is killed while it has an upload: another one takes it over, and it ends once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from tests.tuning import fakes
from tests.tuning.graph import making
from tests.tuning.live import Live, kill_session, live

pytestmark = [pytest.mark.slow]

CALLS = 2_000
"""Of one operator."""
WAIT_S = 90.0


@pytest.fixture
def service(tmp_path: Path, django_db_blocker: Any) -> Iterator[Live]:
    """SQLite and the file-system broker; leases of five seconds."""
    with django_db_blocker.unblock(), live(tmp_path) as service:
        yield service


def upload() -> Any:
    """A chain of Relus that waits to be taken apart."""
    from catalog.registry import default_organisation, register_target
    from tuning.uploads.intake import UploadWish, receive

    nodes = [helper.make_node("Relu", [f"v{n}"], [f"v{n + 1}"]) for n in range(CALLS)]
    data = making.model(nodes, {"v0": [4]}, [f"v{CALLS}"]).SerializeToString()
    wish = UploadWish(name="chain", target=register_target(fakes.TARGET))
    return receive(BytesIO(data).read, wish, default_organisation(), None, 8 << 20)


def ended(row: Any) -> Callable[[], Any]:
    """The upload once it has ended."""

    def look() -> Any:
        row.refresh_from_db()
        return None if row.is_open else row

    return look


def taking_apart(home: Path) -> list[int]:
    """Processes that take something apart for this service's workers."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            of_ours = path.name.isdigit() and (path / "cwd").readlink().is_relative_to(home)
            if of_ours and b"tuning.graph.apart_main" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def passed(trace: Path, place: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []
    return [line for line in lines if line["place"] == place]


def assert_is_one_model(service: Live, row: Any) -> None:
    from catalog.models import Miss, Model
    from tuning.uploads import storage

    assert (row.state, row.is_new, row.operators_done) == ("done", True, 1), row.reason
    [model] = Model.objects.all()
    assert (model.pk, [part.calls for part in model.operators.all()]) == (row.model_id, [CALLS])
    assert [miss.calls for miss in Miss.objects.all()] == [CALLS], "its operator was asked for once"
    service.wait_for(lambda: not storage.kept(), "the end of its bytes")


@pytest.mark.parametrize(
    ("place", "claims"),
    [
        ("taking-apart", 2),
        pytest.param("upload-ending", 2, marks=pytest.mark.nightly),
        ("upload-ended", 1),
    ],
)
def test_a_killed_workers_upload_is_taken_over_after_its_lease_and_ends_once(
    service: Live, place: str, claims: int
) -> None:
    trace = service.home / "trace.jsonl"
    service.environment["OPATLAS_TRACE"] = str(trace)
    victim = service.start_worker(OPATLAS_FAILPOINTS=f"{place}=kill@1")
    service.wait_warm()
    row = upload()
    service.wait_for(lambda: passed(trace, place), f"the worker's end at {place}", WAIT_S)
    row.refresh_from_db()
    first_lease = row.lease_expires_at
    kill_session(victim)  # with Celery's main process: nobody comes in the killed one's place
    assert row.fence == 1

    service.start_worker()
    service.wait_for(ended(row), "the other one's work", WAIT_S)
    assert_is_one_model(service, row)
    assert (row.tries, row.fence) == (claims, claims)
    assert [line["fence"] for line in passed(trace, "upload-claimed")] == [1, 2][:claims]
    assert len(passed(trace, "upload-ended")) == 1
    if claims > 1:
        assert first_lease is not None and row.started_at > first_lease, "not before the lease's end"


def test_what_takes_an_upload_apart_ends_with_its_worker(service: Live) -> None:
    """It is stopped, so that it does not end by itself."""
    trace = service.home / "trace.jsonl"
    victim = service.start_worker(OPATLAS_FAILPOINTS="taking-apart=stop@1", OPATLAS_TRACE=str(trace))
    service.wait_warm()
    upload()
    service.wait_for(lambda: passed(trace, "taking-apart"), "the worker's stop")
    [child] = service.wait_for(lambda: taking_apart(service.home), "the child")
    try:
        os.kill(child, signal.SIGSTOP)
        kill_session(victim)
        service.wait_for(lambda: not taking_apart(service.home), "the child's end")
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_child_that_is_killed_alone_is_nobodys_fault_and_is_started_again(service: Live) -> None:
    worker = service.start_worker()
    service.wait_warm()
    row = upload()
    [child, *_] = service.wait_for(lambda: taking_apart(service.home), "the child")
    os.kill(child, signal.SIGKILL)
    service.wait_for(ended(row), "its end", WAIT_S)
    assert_is_one_model(service, row)
    assert row.tries == 2
    assert worker.poll() is None
