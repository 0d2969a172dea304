"""Which bests are timed again, and what the command says. The timing itself: a nightly bench."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from catalog.best.publishing import publish
from catalog.models import Best
from catalog.registry import register_operator, register_setting, register_target
from tests.catalog import making
from tuning.management.commands import retime_bests
from tuning.retiming.holding import Retimed
from tuning.retiming.retiming import published_bests

pytestmark = pytest.mark.django_db

NOW = timezone.now()


@pytest.fixture
def put(configure: Any, tmp_path: Path) -> Callable[..., Any]:
    """``put(64, 40)``: a Relu of that length whose best is 40 minutes old."""
    configure(home=tmp_path / "home", store=tmp_path / "store")

    def put_one(length: int, minutes: float, purpose: str = "confirm") -> Any:
        place = {
            "operator": register_operator(making.relu(length)),
            "target": register_target(making.TARGET),
            "setting": register_setting(making.SETTING),
        }
        publish(making.new_result(place, "tvm", 2.0, purpose=purpose))
        Best.objects.filter(operator=place["operator"]).update(measured_at=NOW - timedelta(minutes=minutes))
        return place["operator"].key

    return put_one


def test_bests_old_enough_are_taken_the_oldest_first_but_no_default(put: Callable[..., Any]) -> None:
    old, older = put(64, 40), put(65, 50)
    put(66, 10)
    put(67, 60, purpose="default")
    half_an_hour_ago = NOW - timedelta(minutes=30)
    assert keys(half_an_hour_ago, None) == [older, old]
    assert keys(half_an_hour_ago, 1) == keys(half_an_hour_ago, 1)
    assert {tuple(keys(half_an_hour_ago, 1, seed)) for seed in "abcdef"} == {(old,), (older,)}


def keys(before: datetime, sample: int | None, seed: str = "") -> list[str]:
    return [best.operator.key for best in published_bests(making.TARGET, before, sample, seed)]


def test_the_command_says_how_many_hold(
    put: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = {put(length, 40): length for length in (64, 65)}

    class FakeRetimer:
        def retime(self, best: Best) -> Retimed:
            again = 2.01 if lengths[best.operator.key] == 64 else 1.5
            interval = {"ratio": 2.0, "low": best.ratio_low, "high": best.ratio_high}
            about = (best.operator.key, best.operator.summary, best.route, best.label, 2400.0)
            return Retimed(*about, **interval, again=again, again_low=again, again_high=again)

    @contextmanager
    def retimer(home: Path, target: Any) -> Iterator[FakeRetimer]:
        yield FakeRetimer()

    monkeypatch.setattr(retime_bests, "retimer", retimer)
    monkeypatch.setattr(retime_bests, "detect_target", lambda: making.TARGET)
    call_command("retime_bests")
    said = capsys.readouterr().out
    assert "50.0% of 2 published intervals hold (50.0% overlap" in said
    assert "half width is 1.00% in the median" in said and "40 to 40 minutes old" in said
    call_command("retime_bests", "--json", "--sample", "1")
    assert json.loads(capsys.readouterr().out)["bests"] == 1
