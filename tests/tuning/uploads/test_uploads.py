"""Uploads: taken in unread, taken apart once, refused in a sentence, cancelled, and within quotas."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone
from onnx import helper

from catalog.errors import QuotaUsed, StoreError, TooLarge
from catalog.models import Miss, Model, ModelOperator
from catalog.people.keys import create_api_key
from tests import uploading
from tests.tuning.graph import making
from tests.uploading import run_all, workshop
from tuning import ingest
from tuning.queue.held import StaleLease, Stopping
from tuning.uploads import claims, intake, sandboxed, storage
from tuning.uploads.intake import UploadWish, cancel, receive
from tuning.uploads.models import Upload, UploadState
from tuning.uploads.running import MAX_TRIES, run_upload

pytestmark = pytest.mark.django_db

MOST = 1 << 20


@pytest.fixture(autouse=True)
def in_this_process(configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from catalog.usage import journal

    journal.close()
    configure(home=tmp_path / "home", store=tmp_path / "store")
    monkeypatch.setattr(sandboxed, "take_apart", uploading.in_process)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def give(organisation: Any, target_row: Any) -> Callable[..., Upload]:
    """``give(bytes, name="m", key=…)``: an upload that waits."""

    def one(data: bytes, name: str = "m", key: Any = None, owner: Any = None, **wishes: Any) -> Upload:
        wish = UploadWish(name=name, target=target_row, **wishes)
        return receive(BytesIO(data).read, wish, owner or organisation, key, MOST)

    return one


def chain(count: int) -> bytes:
    """Relus of ``count`` sizes: as many operators."""
    nodes = [helper.make_node("Relu", [f"x{n}"], [f"y{n}"]) for n in range(count)]
    shapes = {f"x{n}": [n + 1] for n in range(count)}
    return making.model(nodes, shapes, [f"y{n}" for n in range(count)]).SerializeToString()


def fresh(row: Upload) -> Upload:
    return Upload.objects.get(pk=row.pk)


def expire(row: Upload) -> None:
    Upload.objects.filter(pk=row.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def test_an_upload_becomes_a_model_and_its_bytes_go(give: Callable[..., Upload], home: Path) -> None:
    row = give(chain(3))
    assert (row.state, row.size_bytes) == ("waiting", len(chain(3)))
    assert storage.path_of(row.pk).read_bytes() == chain(3)
    assert run_all(home) == 1
    row = fresh(row)
    assert (row.state, row.is_new, row.operators_done, row.operators_total) == ("done", True, 3, 3)
    assert row.model is not None and row.model.operators.count() == Miss.objects.count() == 3
    assert storage.kept() == []
    again = give(chain(3))
    run_all(home)
    assert (fresh(again).model_id, fresh(again).is_new) == (row.model_id, False)


def test_nothing_is_read_of_what_is_taken_in(
    give: Callable[..., Upload], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What parses models is not even imported by who takes them in: a bomb costs the web its bytes alone."""
    from tuning.graph import apart

    monkeypatch.setattr(apart, "take_apart", lambda *_, **__: pytest.fail("the web parsed an upload"))
    monkeypatch.setattr(ingest, "take_apart", lambda *_, **__: pytest.fail("the web parsed an upload"))
    assert give(b"\x00" * MOST).state == "waiting"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"rubbish", "no complete ONNX file"),
        (b"[" * 100_000, "no valid JSON"),
        (b"[NaN]", "NaN is no JSON number"),
        (b'{"records": 3}', "JSON list of records"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence_and_changes_nothing(
    give: Callable[..., Upload], home: Path, data: bytes, said: str
) -> None:
    row = give(data)
    run_all(home)
    row = fresh(row)
    assert (row.state, row.model_id) == ("refused", None) and said in row.reason
    assert Model.objects.count() == Miss.objects.count() == 0
    assert storage.kept() == []


def test_a_model_of_too_many_nodes_is_refused(
    give: Callable[..., Upload], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(uploading.WISH, "nodes", 5)
    row = give(chain(6))
    run_all(home)
    assert fresh(row).reason == "The model has 6 nodes; at most 5 are accepted."


def test_a_key_and_an_organisation_have_few_at_a_time(
    give: Callable[..., Upload], organisation: Any, tenant: Any, home: Path
) -> None:
    keys = [create_api_key(organisation, f"k{n}", ["models"])[0] for n in range(3)]
    for key in (keys[0], keys[0], keys[1], keys[1]):
        give(chain(1), key=key)
    with pytest.raises(QuotaUsed, match="This key has 2 uploads"):
        give(chain(1), key=keys[0])
    with pytest.raises(QuotaUsed, match="Your organisation has 4 uploads"):
        give(chain(1), key=keys[2])
    give(chain(1), owner=tenant)
    assert len(storage.kept()) == Upload.objects.count() == 5, "what was refused left nothing"
    run_all(home)
    give(chain(1), key=keys[0])


def test_one_beyond_the_quota_is_refused_before_a_byte_is_read(
    organisation: Any, configure: Any, give: Callable[..., Upload]
) -> None:
    configure(uploads_per_key=1)
    give(chain(1))
    with pytest.raises(QuotaUsed):
        receive(lambda _: pytest.fail("it was read"), UploadWish(name="m"), organisation, None, MOST)


def test_what_is_too_large_leaves_nothing(give: Callable[..., Upload]) -> None:
    with pytest.raises(TooLarge, match="larger than 1 MiB"):
        give(b"\x00" * (MOST + 1))
    assert storage.kept() == [] and not Upload.objects.exists()


def test_a_full_disk_is_said_and_leaves_nothing(
    give: Callable[..., Upload], configure: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    configure(store=tmp_path / "file")
    with pytest.raises(StoreError, match="could not be stored"):
        give(chain(1))
    assert not Upload.objects.exists()


def test_a_client_that_drips_is_sent_away(organisation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "RECEIVE_S", 0.0)
    with pytest.raises(storage.TooSlow, match="did not arrive within"):
        receive(lambda _: b"x", UploadWish(name="m"), organisation, None, MOST)
    assert storage.kept() == [] and not Upload.objects.exists()


def test_what_was_cancelled_is_not_taken_apart(give: Callable[..., Upload], home: Path) -> None:
    row = give(chain(1))
    assert cancel(row) and not cancel(row)
    assert run_all(home) == 0
    assert (fresh(row).state, storage.kept(), Model.objects.count()) == ("cancelled", [], 0)


def test_a_worker_notices_that_it_was_cancelled(
    give: Callable[..., Upload], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancelled_meanwhile(body: Path, wish: Any, tier: str, folder: Path, go_on: Callable[[], None]) -> Any:
        cancel(row)
        go_on()
        pytest.fail("it went on")

    row = give(chain(1))
    monkeypatch.setattr(sandboxed, "take_apart", cancelled_meanwhile)
    held = claims.claim("w1")
    assert held is not None and run_upload(workshop(home), held) is False
    assert fresh(row).state == "cancelled" and not Model.objects.exists()


def test_a_killed_workers_upload_is_taken_over_within_the_lease_and_asked_for_once(
    give: Callable[..., Upload], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died after the second batch of three: the other worker asks for the third alone."""
    monkeypatch.setattr(ingest, "BATCH", 2)
    row = give(chain(6))
    original, asked = ingest.lookup, []

    def lookup(request: Any) -> Any:
        if len(asked) == 2:
            raise SystemExit
        asked.append(request)
        return original(request)

    monkeypatch.setattr(ingest, "lookup", lookup)
    dead = claims.claim("w1")
    assert dead is not None
    with pytest.raises(SystemExit):
        run_upload(workshop(home), dead)
    monkeypatch.setattr(ingest, "lookup", original)
    assert claims.claim("w2") is None, "its lease goes on"
    expire(row)
    assert run_all(home) == 1
    assert (fresh(row).state, fresh(row).tries) == ("done", 2)
    assert [miss.calls for miss in Miss.objects.all()] == [1.0] * 6
    with pytest.raises(StaleLease):
        dead.end(UploadState.DONE, "")


def test_who_comes_back_late_asks_for_nothing_more(give: Callable[..., Upload], home: Path) -> None:
    """A worker that was stopped for longer than its lease, and goes on: its batch is undone."""
    row = give(chain(2))
    late = claims.claim("late")
    assert late is not None
    expire(row)
    taken = ingest.shown(ingest.take_apart(chain(2), {}, False))
    from tuning.uploads.running import KeptAsked, _wish

    wish = _wish(late.load())
    run_all(home)
    with pytest.raises(StaleLease):
        ingest.ask(taken, wish, KeptAsked(held=late))
    assert [miss.calls for miss in Miss.objects.all()] == [1.0] * 2
    assert ModelOperator.objects.count() == 2


def test_one_that_kills_its_workers_is_given_up(give: Callable[..., Upload], home: Path) -> None:
    row = give(chain(1))
    for _ in range(MAX_TRIES):
        assert claims.claim("dead") is not None
        expire(row)
    run_all(home)
    assert (fresh(row).state, fresh(row).reason) == ("dead", "Its workers fell silent 3 times.")


@pytest.mark.parametrize(("killed", "state"), [(MAX_TRIES - 1, "done"), (MAX_TRIES, "dead")])
def test_where_others_kill_the_child_it_is_tried_again_and_at_last_given_up(
    give: Callable[..., Upload], home: Path, monkeypatch: pytest.MonkeyPatch, killed: int, state: str
) -> None:
    tries: list[Path] = []

    def take_apart(body: Path, wish: Any, *rest: Any) -> dict[str, Any]:
        tries.append(body)
        if len(tries) <= killed:
            raise sandboxed.ApartFailed("It was killed from outside.")
        return uploading.in_process(body, wish)

    monkeypatch.setattr(sandboxed, "take_apart", take_apart)
    row = give(chain(1))
    run_all(home)
    row = fresh(row)
    assert (row.state, row.tries, len(tries)) == (state, MAX_TRIES, MAX_TRIES)
    assert ("killed from outside" in row.reason) == (state == "dead")
    assert storage.kept() == []


def test_a_stopping_worker_gives_it_back(give: Callable[..., Upload], home: Path) -> None:
    row = give(chain(1))
    held = claims.claim("w1")
    assert held is not None

    def stop(body: Path, wish: Any, tier: str, folder: Path, go_on: Callable[[], None]) -> Any:
        raise Stopping

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopping):
        patch.setattr(sandboxed, "take_apart", stop)
        run_upload(workshop(home), held)
    assert (fresh(row).state, fresh(row).tries) == ("waiting", 0)
    assert run_all(home) == 1


def test_what_the_child_answers_is_trusted_no_more_than_a_caller(
    give: Callable[..., Upload], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that takes the parser over could say anything."""
    graph = {"inputs": [], "nodes": [{"op": "Relu", "inputs": [7], "outputs": [9], "attrs": {}}],
             "outputs": [9], "produced": []}  # fmt: skip
    for answer in (
        {"form": "onnx", "operators": [{"graph": graph, "calls": 1, "example": ""}], "unmapped": {},
         "structure": None},
        {"form": "onnx", "operators": 3, "unmapped": {}, "structure": None},
        {"form": "onnx", "operators": [], "unmapped": {}, "structure": "AAAA"},
    ):  # fmt: skip
        monkeypatch.setattr(sandboxed, "take_apart", lambda *_, found=answer: found)
        row = give(b"x")
        run_all(home)
        assert fresh(row).state == "refused", answer
    assert not Model.objects.exists() and not Miss.objects.exists()


def begun(organisation: Any) -> Upload:
    """As a web process leaves it that was killed while it received."""
    row = intake._entered(UploadWish(name="m"), organisation, None)
    storage.path_of(row.pk).parent.mkdir(parents=True, exist_ok=True)
    storage.path_of(row.pk).write_bytes(b"half")
    return row


def test_what_never_arrived_in_full_is_swept_with_its_bytes(
    organisation: Any, give: Callable[..., Upload]
) -> None:
    kept, orphan = give(chain(1)), begun(organisation)
    intake.sweep()
    assert set(storage.kept()) == {kept.pk, orphan.pk}, "it may still arrive"
    expire(orphan)
    intake.sweep()
    assert storage.kept() == [kept.pk] and fresh(orphan).reason == "It was not received in full."


def test_what_arrives_slowly_keeps_its_lease_and_what_lost_it_is_told(
    organisation: Any, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read takes a third of a lease, by the clock that says when it has to be renewed."""
    configure(lease_s=60.0)
    moments, leases = itertools.count(step=20.0), list[Any]()
    monkeypatch.setattr(intake, "time", SimpleNamespace(monotonic=lambda: next(moments)))

    def slowly(_: int) -> bytes:
        leases.append(Upload.objects.get().lease_expires_at)
        time.sleep(0.01)
        return b"x" if len(leases) < 5 else b""

    assert receive(slowly, UploadWish(name="m"), organisation, None, MOST).state == "waiting"
    assert leases == sorted(set(leases)), "it was renewed again and again"

    body = BytesIO(b"late")

    def too_slowly(count: int) -> bytes:
        expire(Upload.objects.latest("pk"))
        intake.sweep()
        return body.read(count)

    with pytest.raises(storage.TooSlow, match="given up before all of it was there"):
        receive(too_slowly, UploadWish(name="late"), organisation, None, MOST)
    assert not Upload.objects.filter(name="late").exists()


@pytest.mark.parametrize("hours", [-26, 26])
def test_a_web_process_whose_clock_is_wrong_is_given_its_lease_too(
    organisation: Any, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """A day behind it was swept at once; a day ahead, it took its place in the quota for a day."""
    now = timezone.now
    with monkeypatch.context() as patched:
        patched.setattr("django.utils.timezone.now", lambda: now() + timedelta(hours=hours))
        row = begun(organisation)
    intake.sweep()
    assert fresh(row).state == "receiving"
    lease = fresh(row).lease_expires_at
    assert lease is not None and timedelta(0) < lease - now() < timedelta(minutes=5)


def test_the_latest_that_ended_are_kept(
    give: Callable[..., Upload], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MOST_KEPT", 2)
    for _ in range(4):
        give(b"x")
        run_all(home)
    assert Upload.objects.count() == 3
