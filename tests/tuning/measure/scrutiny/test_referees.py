"""Who computes references: the host, or the device for what takes the host long, held against the host."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("torch", reason="references are PyTorch's")

from opatlas.identity import Operator, Setting, parse_operator
from opatlas.load.torch.ops import linear
from tests.tuning.measure.device.simulated import CALM, NO_GPU, SimulatedMonitor
from tuning.measure.device.watch import DeviceWatch
from tuning.measure.judging import reference
from tuning.measure.judging.check import Reference, compare
from tuning.measure.judging.confirming import Unconfirmed
from tuning.measure.outcome import Status
from tuning.measure.sandbox.process import Bounds, ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.scrutiny import fresh_sets
from tuning.measure.scrutiny.referees import Referees
from tuning.measure.shared_tensors import TensorSlot
from tuning.measure.specimen import Specimen

Spoil = Callable[[np.ndarray, np.ndarray], None]
"""Changes a value, or what it may differ by, in place."""


CONFIRMED = {"reference": "torch64", "reference_confirmed_by": "ONNX Runtime"}


def matmul(dtype: str = "float32") -> Operator:
    shapes = [{"shape": [16, 64], "dtype": dtype}, {"shape": [64, 16], "dtype": dtype}]
    return parse_operator({"op": "MatMul", "inputs": shapes})


class HereAndNow:
    """A zygote whose children compute in this process; ``spoil`` is what a device does to its results."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.spoil: Spoil | ChildFailed | None = None

    def spawn(self, request: Mapping[str, Any], fds: Sequence[int], bounds: Bounds) -> HereAndNow:
        self.asked.append((request.get("device", "host"), len(request["sets"]), bounds.device_bytes))
        self._reply: ChildFailed | None = None
        self._answer: dict[str, Any] = {"ok": True}
        try:
            self._answer["confirmed_by"] = reference.compute(request, fds[0], fds[1], fds[2])
        except Unconfirmed as refused:
            self._answer = {"error": str(refused)}
        if "device" in request and isinstance(self.spoil, ChildFailed):
            self._reply = self.spoil
        elif "device" in request and self.spoil is not None:
            memory = mmap.mmap(fds[1], 0)
            for one in (one for outputs in request["outputs"] for one in outputs):
                slots = [TensorSlot.from_json(one[name]) for name in ("value", "allowed")]
                self.spoil(*(slot.flat(memory) for slot in slots))
        return self

    def ask(self, command: None, timeout_s: float) -> dict[str, Any]:
        if self._reply is not None:
            raise self._reply
        return self._answer

    def forget(self, child: HereAndNow) -> None:
        assert child is self


@pytest.fixture(autouse=True)
def everything_is_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_sets, "HEAVY_FLOPS", 0)
    monkeypatch.setattr(reference, "_reuse_memory", lambda: None)  # of this process


@pytest.fixture
def watch() -> DeviceWatch:
    """The processor is the device."""
    made = DeviceWatch(NO_GPU, SimulatedMonitor())
    made.torch_device = "cpu"
    return made


@pytest.fixture
def specimen() -> Iterator[Specimen]:
    made = Specimen(matmul(), Setting())
    yield made
    made.close()


def judge(specimen: Specimen, library: HereAndNow, watch: DeviceWatch | None) -> tuple[Referees, Any]:
    referees = Referees(specimen, "", lambda: cast(Zygote, library), watch)
    return referees, referees.judge(specimen.inputs.fd, specimen.request()["sets"])


def test_a_device_is_believed_once_the_host_has_said_the_same(specimen: Specimen, watch: DeviceWatch) -> None:
    library = HereAndNow()
    referees, found = judge(specimen, library, watch)
    room = CALM.total_bytes - CALM.used_bytes
    assert library.asked == [("cpu", specimen.sets, room), ("host", 1, 0)]
    assert referees.facts() == {**CONFIRMED, "reference_on": "cuda:0"}
    right = specimen.own[1][0].reshape(16, 64) @ specimen.own[1][1].reshape(64, 16)
    assert compare([right], found[1]).status is Status.OK
    referees.of(specimen.own[:2])
    assert library.asked[2:] == [("cpu", 2, room)], "once for an operator"


def _one_value(value: np.ndarray, allowed: np.ndarray) -> None:
    value[5] += 0.2 * allowed[5]  # as float32 would compute it


def _no_number(value: np.ndarray, allowed: np.ndarray) -> None:
    value[5] = np.nan


def _anything_goes(value: np.ndarray, allowed: np.ndarray) -> None:
    allowed[...] = np.inf


def _too_strict(value: np.ndarray, allowed: np.ndarray) -> None:
    allowed[7] /= 2


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_one_value, "output 0: 1 of 256 values are apart"),
        (_no_number, "output 0: 1 of 256 values are apart"),
        (_anything_goes, "output 0: 256 of 256 allowed errors are others"),
        (_too_strict, "output 0: 1 of 256 allowed errors are others"),
    ],
)
def test_a_device_that_computes_other_references_is_found_out(
    specimen: Specimen, watch: DeviceWatch, spoil: Spoil, words: str
) -> None:
    library = HereAndNow()
    library.spoil = spoil
    referees, found = judge(specimen, library, watch)
    assert referees.facts() == {
        **CONFIRMED,
        "reference_not_on_device": f"cuda:0 and the host disagree: {words}",
    }
    _, by_host = judge(specimen, HereAndNow(), None)
    assert _same(found, by_host)
    assert watch.doubted, "its next trial waits for its self-test"
    referees.of(specimen.own[:1])
    assert library.asked[-1][0] == "host", "it is not asked again"


def test_where_the_device_fails_the_host_computes(specimen: Specimen, watch: DeviceWatch) -> None:
    library = HereAndNow()
    library.spoil = ChildFailed(Status.OUT_OF_MEMORY, "CUDA out of memory")
    referees, found = judge(specimen, library, watch)
    assert referees.facts()["reference_not_on_device"] == "CUDA out of memory"
    assert len(found) == specimen.sets and library.asked[-1][0] == "host"


@pytest.mark.parametrize(
    "why", ["it is cheap", "it is of float64", "it is in doubt", "it is full", "nobody knows its size"]
)
def test_the_host_computes_where_the_device_is_no_help(
    specimen: Specimen, watch: DeviceWatch, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device: DeviceWatch = watch
    if why == "it is of float64":
        specimen.close()
        specimen = Specimen(matmul("float64"), Setting())
    if why == "it is cheap":
        monkeypatch.setattr(fresh_sets, "HEAVY_FLOPS", 1e9)
    if why == "it is in doubt":
        device.saw(Status.CRASHED)
    if why == "it is full":
        device.enter(10, CALM.total_bytes - CALM.used_bytes - (1 << 30))
    if why == "nobody knows its size":
        device = DeviceWatch(NO_GPU)
    library = HereAndNow()
    referees, _ = judge(specimen, library, device)
    assert [place for place, _, _ in library.asked] == ["host"]
    assert referees.facts() == CONFIRMED


def _same(one: Sequence[Sequence[Reference]], other: Sequence[Sequence[Reference]]) -> bool:
    pairs = [pair for both in zip(one, other, strict=True) for pair in zip(*both, strict=True)]
    return all(
        np.array_equal(a.value, b.value) and np.array_equal(a.allowed, b.allowed)  # type: ignore[arg-type]
        for a, b in pairs
    )


def test_a_smaller_claim_leaves_more_room(watch: DeviceWatch) -> None:
    monitor = cast(SimulatedMonitor, watch.monitor)
    monitor.now = replace(CALM, used_bytes=3 << 30)
    watch.enter(10, 7 << 30)
    assert watch.room_bytes == CALM.total_bytes - (10 << 30)
    watch.leave(10)
    assert watch.room_bytes == CALM.total_bytes - (3 << 30)


def _off_by_one(site: Any) -> Callable[..., Any]:
    return lambda a, b: a @ b + 1


def test_a_wrong_call_of_pytorch_is_no_reference(specimen: Specimen, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is made of the same calls: it would pass as right."""
    monkeypatch.setitem(linear.BUILDERS, "MatMul", _off_by_one)
    referees, found = judge(specimen, HereAndNow(), None)
    assert referees.facts() == {"reference": "onnx"}
    a, b = (specimen.own[0][number].reshape(shape) for number, shape in ((0, (16, 64)), (1, (64, 16))))
    assert compare([a @ b], found[0]).status is Status.OK
    assert compare([a @ b + 1], found[0]).status is Status.WRONG_RESULT


def test_the_first_references_alone_are_confirmed(
    specimen: Specimen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later ones are of the same calls."""
    referees, _ = judge(specimen, HereAndNow(), None)
    monkeypatch.setattr(reference, "Confirmation", None)
    assert len(referees.of(specimen.own[:1])) == 1
