"""Records survive the worker, serve neighbours, and slices are claimed by worth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from catalog.models import Organisation
from catalog.people.keys import create_api_key
from opatlas.identity import Operator, Setting
from tests.conftest import Api
from tests.tuning import fakes
from tests.tuning.fakes import FakeTunable
from tuning.models import Exploration, Stage, State, Trial, TuningRecord, TuningSlice
from tuning.queue import claims
from tuning.routes.base import Candidate, SearchRecord
from tuning.routes.likeness import family_of, features_of

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class FakeLearning(FakeTunable):
    """Learns one record a slice: its number and the given ones, halved in time each."""

    version: str = "fakes 1"
    given: list[list[SearchRecord]] = field(default_factory=list)

    def record_version(self) -> str:
        return self.version

    def transfer(self, *args: Any) -> Iterator[Candidate]:
        raise AssertionError("the laboratory transfers")

    def seed(self, workdir: Path, records: Sequence[SearchRecord]) -> None:
        self.given.append(list(records))

    def learnt(self, workdir: Path) -> Sequence[SearchRecord]:
        slices = int((workdir / "slices").read_text())
        return [
            SearchRecord({"ratio": 1.0 + n, "learnt": str(workdir)[-60:]}, 100.0 / n)
            for n in range(1, slices + 1)
        ]


class TransferringLaboratory(fakes.FakeLaboratory):
    asked: list[list[SearchRecord]] = []

    def transfer(
        self, route: Any, operator: Operator, setting: Setting, records: Sequence[SearchRecord], workdir: Path
    ) -> list[Candidate]:
        self.asked.append(list(records))
        return [
            Candidate(route.name, {"ratio": dict(one.record)["ratio"]}, f"from {one.origin or 'itself'}")
            for one in records
        ]


@pytest.fixture
def laboratory(monkeypatch: pytest.MonkeyPatch) -> type[TransferringLaboratory]:
    monkeypatch.setattr(fakes, "FakeLaboratory", TransferringLaboratory)
    monkeypatch.setattr(TransferringLaboratory, "asked", [])
    return TransferringLaboratory


def explored() -> Exploration:
    return Exploration.objects.order_by("pk").last()  # type: ignore[return-value]


def test_records_of_a_slice_are_rows_and_survive_the_workers_disk(
    make_miss: Callable[..., Any], worker_with: Any, tmp_path: Path, laboratory: Any
) -> None:
    searcher = FakeLearning("searcher", "compiler", offers=[{"ratio": 0.9}])
    make_miss("Conv", calls=30)
    worker_with(searcher).run_until_idle()
    row = explored()
    assert row.tuning_slices > 1
    records = list(TuningRecord.objects.order_by("time_us"))
    assert len(records) == row.tuning_slices
    assert records[0].time_us == pytest.approx(100 / row.tuning_slices)
    operator = Operator.from_json(row.operator.graph)
    setting = Setting.from_json(row.setting.description)
    assert records[0].family == family_of(operator, setting)
    assert records[0].features == features_of(operator, setting)
    assert searcher.given[0] == []
    assert searcher.given[1] and searcher.given[1][0].origin == ""
    shutil.rmtree(tmp_path / "tuning")
    from tuning.queue import steering as queues

    queues.retry(row.pk)
    other = FakeLearning("searcher", "compiler", offers=[{"ratio": 0.9}])
    worker_with(other, name="w2").run_until_idle()
    assert [one.time_us for one in other.given[0]] == [one.time_us for one in records]
    labels = Trial.objects.filter(exploration=row, stage=Stage.CONTEST, round=1, route="searcher")
    assert labels.order_by("started_at").first().label == "from itself"  # type: ignore[union-attr]


def test_a_new_operators_contest_begins_with_its_nearest_neighbours(
    make_miss: Callable[..., Any], worker_with: Any, laboratory: Any
) -> None:
    searcher = FakeLearning("searcher", "compiler", offers=[{"ratio": 0.9}])
    for size in (64, 256, 4096, 1 << 20):
        make_miss("Conv", size, calls=30)
    make_miss("Softmax", 512, calls=30)
    worker_with(searcher).run_until_idle()
    laboratory.asked.clear()
    make_miss("Conv", 512, calls=30)
    worker_with(FakeLearning("searcher", "compiler", offers=[{"ratio": 0.9}]), name="w2").run_until_idle()
    assert [record.origin for record in laboratory.asked[0]] == ["256", "64", "4096"]
    trials = Trial.objects.filter(exploration=explored(), stage=Stage.CONTEST, route="searcher")
    assert trials.order_by("started_at").first().label == "from 256"  # type: ignore[union-attr]


def test_records_of_another_version_are_not_understood(
    make_miss: Callable[..., Any], worker_with: Any, laboratory: Any
) -> None:
    make_miss("Conv", 256, calls=30)
    worker_with(FakeLearning("searcher", "compiler", offers=[{"ratio": 0.9}])).run_until_idle()
    make_miss("Conv", 512, calls=30)
    newer = FakeLearning("searcher", "compiler", offers=[{"ratio": 0.9}], version="fakes 2")
    worker_with(newer, name="w2").run_until_idle()
    assert laboratory.asked == []
    assert newer.given[0] == []


def test_what_is_private_teaches_nobody_else(
    make_miss: Callable[..., Any], worker_with: Any, laboratory: Any
) -> None:
    make_miss("Conv", 256, calls=30, scope="org:7")
    worker_with(FakeLearning("searcher", "compiler", offers=[{"ratio": 0.9}])).run_until_idle()
    assert explored().tuning_slices > 0
    assert not TuningRecord.objects.exists()


def test_every_slice_is_kept_with_what_was_expected_and_gained(
    make_miss: Callable[..., Any], worker_with: Any
) -> None:
    finds = [{"ratio": 1.4}, {}, {"ratio": 2.0}]
    make_miss("Conv", calls=3)
    worker_with(FakeTunable("searcher", "compiler", offers=[{"ratio": 0.9}], finds=finds)).run_until_idle()
    slices = list(TuningSlice.objects.order_by("pk"))
    assert [round(one.gained, 3) for one in slices[:3]] == [round(1 - 1 / 1.4, 3), 0.0, 0.3]
    assert all(0 < one.expected_gain < 1 for one in slices)
    assert slices[0].expected_gain == pytest.approx(0.08, rel=0.2)
    assert slices[1].expected_gain > slices[0].expected_gain, "it gained more than was expected"
    assert (slices[0].family, slices[0].before_us) == ("Conv, small", 100.0)
    assert slices[0].after_us == pytest.approx(100 / 1.4)
    assert explored().expected_gain is not None


def test_the_slice_worth_most_is_claimed_first(make_exploration: Callable[..., Any], target_row: Any) -> None:
    rows = [
        make_exploration("Conv", size, stage=Stage.TUNE, worth=worth)
        for size, worth in ((1, 5), (2, 70), (3, 9))
    ]
    claimed = [claims.claim("w1", target_row.pk)[0].pk for _ in rows]
    assert claimed == [rows[1].pk, rows[2].pk, rows[0].pk]


@pytest.fixture
def history(make_exploration: Callable[..., Any]) -> None:
    """First slices that gained 30 % (Conv) or nothing (Softmax), twenty of each."""
    for size in range(1, 21):
        for op, gained in (("Conv", 0.3), ("Softmax", 0.0)):
            row = make_exploration(op, size, state=State.DONE)
            TuningSlice.objects.create(
                exploration=row, route="searcher", family=f"{op}, small", expected_gain=0.1, gained=gained,
                before_us=100.0, after_us=100.0, seconds=15,
            )  # fmt: skip


def test_of_two_equal_operators_the_kind_that_gained_before_is_tuned_first(
    history: None, make_miss: Callable[..., Any], worker_with: Any
) -> None:
    make_miss("Softmax", 2048, calls=30)
    make_miss("Conv", 2048, calls=30)
    last = TuningSlice.objects.order_by("-pk").first()
    worker_with(FakeTunable("searcher", "compiler", offers=[{"ratio": 0.9}])).run_until_idle()
    first = TuningSlice.objects.filter(pk__gt=last.pk).order_by("pk").first()  # type: ignore[union-attr]
    assert first.exploration.operator.op_type == "Conv"  # type: ignore[union-attr]
    conv, softmax = (
        Exploration.objects.get(operator__summary=f"{op} 2048", state=State.DONE)
        for op in ("Conv", "Softmax")
    )
    assert conv.tuning_slices > softmax.tuning_slices


def test_a_hopeless_exploration_ends_with_the_reason(
    history: None, make_miss: Callable[..., Any], worker_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuning.explore import plan

    monkeypatch.setattr(plan, "hopeless_but_tried", lambda number, identity: False)
    make_miss("Softmax", 2048, calls=1)
    worker_with(FakeTunable("searcher", "compiler", offers=[{"ratio": 0.9}])).run_until_idle()
    row = Exploration.objects.get(operator__summary="Softmax 2048")
    assert (row.state, row.tuning_slices, row.max_tuning_slices) == (State.DONE, 0, 0)
    assert "not worth" in row.reason and "slices of" in row.reason


def test_more_calls_raise_a_queued_slices_worth_and_keep_its_expectation(
    make_exploration: Callable[..., Any],
) -> None:
    from tuning.queue.promote import reweigh

    row = make_exploration("Conv", stage=Stage.TUNE, worth=10.0, calls=2.0, expected_gain=0.05)
    reweigh(row, worth=999.0, priority=2, calls=6.0)
    row.refresh_from_db()
    assert (row.worth, row.calls) == (30.0, 6.0)


def test_records_read_back_from_a_sandbox_are_taken_with_care(tmp_path: Path) -> None:
    from tuning.routes.compiler.tvm import known

    good = SearchRecord({"tile": {"variant": "packed"}}, 5.0, "64×64")
    bad: list[Any] = [{}, {"record": 3, "time_us": 1, "origin": ""}, {**asdict(good), "time_us": "inf"}, 7]
    path = tmp_path / known.LEARNT
    path.write_text(json.dumps([*bad, asdict(good)]))
    assert known.read(path) == [good]
    for text in ("[", "{}", "null", '"x"'):
        path.write_text(text)
        assert known.read(path) == []
    assert known.read(tmp_path / "missing") == []
    known.write(path, [SearchRecord({"n": n}, float(n)) for n in range(20, 0, -1)])
    assert [one.time_us for one in known.read(path)] == [float(n) for n in range(1, known.MOST + 1)]


def test_rest_reports_how_well_expectations_held(api: Any, history: None, make_exploration: Any) -> None:
    private = make_exploration("MatMul", 5, scope="org:999999")
    TuningSlice.objects.create(
        exploration=private, route="searcher", family="x", expected_gain=0.5, gained=0.5, seconds=1
    )
    job = Api(create_api_key(Organisation.objects.create(name="tenant"), "job", ["lookup"])[1])
    found = job.get("tuning/accuracy").json()
    assert found["overall"]["count"] == 40
    assert found["overall"]["mean_expected"] == pytest.approx(0.1)
    assert found["overall"]["mean_gained"] == pytest.approx(0.15)
    assert found["overall"]["rank_correlation"] is None, "all were expected to be alike"
    assert set(found["by_op_type"]) == {"Conv", "Softmax"}
    assert found["by_op_type"]["Conv"]["mean_absolute_error"] == pytest.approx(0.2)
    assert api.get("tuning/accuracy").json()["overall"]["count"] == 41, "who runs the service sees all"
    TuningSlice.objects.all().delete()
    assert api.get("tuning/accuracy").json() == {"overall": None, "by_op_type": {}}
