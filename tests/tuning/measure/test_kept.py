"""What setting an operator up found is kept for its next bench, and never where a stranger has seen it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opatlas.identity import Operator, Setting
from tests.tuning.measure.conftest import default_artifact
from tests.tuning.measure.kernels import REPEATED, relu_operator
from tuning.measure import kept
from tuning.measure.bench import LiveBench
from tuning.measure.kept import KeptSetUp, KeptSetUps
from tuning.measure.laboratory import Bench, Laboratory
from tuning.measure.outcome import Outcome, Status
from tuning.measure.specimen import Specimen
from tuning.routes.base import BuiltArtifact


@pytest.fixture
def set_ups(monkeypatch: pytest.MonkeyPatch) -> list[LiveBench]:
    """Benches that were set up from nothing."""
    seen: list[LiveBench] = []
    whole = LiveBench._set_up

    def counted(self: LiveBench) -> Outcome:
        seen.append(self)
        return whole(self)

    monkeypatch.setattr(LiveBench, "_set_up", counted)
    return seen


@pytest.fixture
def opened(
    lab: Laboratory, setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Bench], None]], None]:
    """Does something on a bench of Relu, each time one that is opened anew."""
    operator, numbers = relu_operator(), iter(range(9))
    monkeypatch.setattr(lab, "kept", KeptSetUps())
    monkeypatch.setitem(lab.__dict__, "_equipment", replace(lab._equipment, kept=lab.kept))

    def on_bench(do: Callable[[Bench], None]) -> None:
        folder = tmp_path / f"default-{next(numbers)}"
        folder.mkdir()
        with lab.bench(operator, setting, default_artifact(lab, operator, setting, folder)) as bench:
            assert bench.default.ok, bench.default
            do(bench)

    return on_bench


def our_own(artifact: BuiltArtifact) -> BuiltArtifact:
    return replace(artifact, manifest=replace(artifact.manifest, route="tvm"))


def test_the_next_bench_takes_it_and_checks_and_times_as_ever(
    opened: Callable[..., None], kernel: Callable[..., BuiltArtifact], set_ups: list[LiveBench]
) -> None:
    right, wrong = our_own(kernel("once", REPEATED % 2)), our_own(kernel("wrong"))
    outcomes: list[Outcome] = []
    for _ in range(2):
        opened(lambda bench: outcomes.extend(bench.heat([right, wrong])))
    assert len(set_ups) == 1
    assert [one.status for one in outcomes][1::2] == [Status.WRONG_RESULT] * 2
    assert {one.status for one in outcomes[::2]} <= {Status.OK, Status.NOISY}


def test_what_a_stranger_ran_on_is_not_kept(
    opened: Callable[..., None], kernel: Callable[..., BuiltArtifact], set_ups: list[LiveBench]
) -> None:
    submitted = kernel("once", REPEATED % 2)
    opened(lambda bench: None)
    opened(lambda bench: bench.measure(submitted) and None)
    assert len(set_ups) == 1, "a stranger may run on what is kept"
    opened(lambda bench: None)
    assert len(set_ups) == 2, "and nobody after him"


def a_set_up(operator: Operator) -> KeptSetUp:
    return KeptSetUp(Specimen(operator, Setting(threads=1)), "", Outcome(Status.OK))


def is_open(one: KeptSetUp) -> bool:
    try:
        os.fstat(one.specimen.inputs.fd)
    except OSError:
        return False
    return True


def test_the_oldest_gives_way_and_nothing_is_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    ones = [a_set_up(relu_operator()) for _ in range(4)]
    shelf = KeptSetUps(nbytes=2 * ones[0].nbytes)
    for number, one in enumerate(ones[:3]):
        shelf.give(str(number), one)
    assert shelf.take("0") is None and not is_open(ones[0])
    assert shelf.take("1") is ones[1] and is_open(ones[1])
    assert shelf.take("1") is None, "whoever took it has it alone"
    shelf.give("3", ones[3])
    monkeypatch.setattr(kept, "KEPT_S", -1.0)
    assert shelf.take("2") is None and not any(map(is_open, (ones[2], ones[3])))
    shelf.give("1", ones[1])
    shelf.close()
    assert not is_open(ones[1])
