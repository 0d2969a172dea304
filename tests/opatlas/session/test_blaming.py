"""A kernel that gives other values on a caller's inputs: found, told, and left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.client import Client
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Setting
from opatlas.load.onnxruntime_recipe import OrtKernel
from opatlas.load.recipe import check_recipe
from opatlas.plan import choosing
from opatlas.plan.plan import ByKernel
from opatlas.session.known_kernels import KnownKernels
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.client.test_client import until
from tests.opatlas.load.kernels import ADD
from tests.opatlas.plan.making import Kernels, assert_same, wanted
from tests.opatlas.plan.standings import the_more_kernels_the_better
from tests.opatlas.session import stand_ins
from tests.opatlas.session.test_session import FEED, adding, kernels_win  # noqa: F401 - a fixture

WRONG_BEYOND_100 = ADD.replace("x[i] + y[i]", "x[i] + y[i] + (y[i] > 100.0f)")
LARGE = {name: 1000 * array for name, array in FEED.items()}
RIGHT, WRONG = "1" * 64, "2" * 64


class WrongBeyond(OrtKernel):
    """As ONNX Runtime, one more where an input is beyond what the example has."""

    told: list[str]

    def bind(self, inputs: Any, outputs: Sequence[np.ndarray] | None = None) -> Any:
        assert outputs is not None
        bound = super().bind(inputs, outputs)

        def call() -> None:
            bound()
            for output in outputs:
                output += any((array > stand_ins.BEYOND).any() for array in inputs.values())

        return call

    def blame(self, message: str) -> None:
        self.told.append(message)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], opatlas.Session]]:
    """Kernels for every node, those of additions wrong, which nobody has to ask a service for."""
    known = Kernels(ModelGraph(adding()))
    adds = {key for key, one in known.operators.items() if one.nodes[0].op == "Add"}

    def look_up(self: KnownKernels) -> None:
        self.own = {
            at: replace(one, by=replace(one.by, artifact=WRONG if one.by.operator in adds else RIGHT))
            for at, one in known.candidates.items()
        }

    def load(self: KnownKernels, by: ByKernel) -> OrtKernel:
        kind = WrongBeyond if by.artifact == WRONG else OrtKernel
        return kind(
            known.operators[by.operator], check_recipe({"library": "onnxruntime", "call": "session"}, 1)
        )

    monkeypatch.setattr(KnownKernels, "look_up", look_up)
    monkeypatch.setattr(KnownKernels, "load", load)
    monkeypatch.setattr(KnownKernels, "has", lambda self, by: True)
    monkeypatch.setattr(WrongBeyond, "told", [], raising=False)
    monkeypatch.setattr(choosing, "line_up", the_more_kernels_the_better)
    monkeypatch.setattr(choosing, "foretold_us", lambda run: 99e3)
    with Client(offline=True, cache=tmp_path, setting=Setting(threads=1)) as client:
        yield lambda: opatlas.Session(adding(), client=client, frameworks=(), fusions=0, try_s=0.0)


def artifacts(session: opatlas.Session) -> set[str]:
    return {by.artifact for by in session.plan.kernels}


def test_the_kernel_that_is_to_blame_is_told_and_left_out_and_others_stay(make: Any) -> None:
    with make() as session:
        assert artifacts(session) == {RIGHT, WRONG}
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
        assert_same(session.run(None, LARGE), wanted(adding(), LARGE))
        [(who, reason)] = session.refused.items()
        assert "by kernels" in who and reason.endswith("on the caller's inputs, in run 2")
        assert artifacts(session) == set() and WrongBeyond.told == [reason]
    with make() as later:
        assert artifacts(later) == {RIGHT}
        assert_same(later.run(None, LARGE), wanted(adding(), LARGE))


def test_what_no_kernel_alone_is_to_blame_for_is_left_out_as_a_whole(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opatlas.session import session as module

    monkeypatch.setattr(module, "blamed_kernels", lambda *given: [])
    with make() as session:
        assert_same(session.run(None, LARGE), wanted(adding(), LARGE))
    assert WrongBeyond.told == []
    with make() as later:
        assert artifacts(later) == set() and later.checks is None


def test_the_service_hears_of_it(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    from tuning.models import FailureReport

    publish_add(source=WRONG_BEYOND_100)
    with opatlas.Session(adding(), client=job(timeout_s=60.0)) as session:
        assert artifacts(session)
        assert_same(session.run(None, LARGE), wanted(adding(), LARGE))
        assert artifacts(session) == set()
        until(FailureReport.objects.exists)
    report = FailureReport.objects.get()
    assert report.error == "OtherValues" and "other values than ONNX Runtime" in report.message
