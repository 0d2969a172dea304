"""Functions whose kernels compute on a device (a simulated one): on copies of arrays of the host, and in
place on arrays that lie there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opatlas.client.loading.buffers import stream_of
from opatlas.client.loading.failing import FailureWatch
from opatlas.client.loading.function import KernelFunction
from opatlas.errors import CallerError, LoadError
from opatlas.load.numpy_arrays import ArrayKernel
from tests.opatlas.load.cuda.simulated import SimulatedDriver
from tests.opatlas.load.cuda.simulated_arrays import ArrayThere, read_there
from tests.opatlas.load.cuda.simulated_streams import StreamingSimulation
from tests.opatlas.load.cuda.test_module import RUN, image, kernel, manifest
from tests.opatlas.load.cuda.test_plan import QUOTIENT

X, WEIGHTS = np.arange(32, dtype=np.float32).reshape(4, 8), np.full((4, 8), 0.5, np.float32)


def loaded(device: SimulatedDriver, **more: Any) -> KernelFunction:
    function = KernelFunction(QUOTIENT, manifest(RUN, image()), kernel=kernel(device, RUN), **more)
    function.prepare({1: WEIGHTS})
    return function


@pytest.fixture
def device() -> SimulatedDriver:
    return SimulatedDriver()


@pytest.fixture
def there(device: SimulatedDriver) -> ArrayThere:
    return ArrayThere(device, X)


@pytest.fixture
def told() -> list[Any]:
    """What was reported of kernels that failed."""
    return []


@pytest.fixture
def watch(tmp_path: Path, told: list[Any]) -> FailureWatch:
    best = {"artifact": tmp_path.name, "implementation": "one", "route": "cuda", "label": "two rows"}
    return FailureWatch(best, tmp_path, told.append, compiled=True)


def test_what_was_written_into_an_array_since_the_last_run_is_seen(device: SimulatedDriver) -> None:
    x, function = X.copy(), loaded(device)
    first = function(x)
    np.testing.assert_array_equal(first, x / WEIGHTS)
    given = np.empty_like(x)
    mine, theirs = function.bind([x]), function.bind([x], [given])
    x += 1
    np.testing.assert_array_equal(function(x), x / WEIGHTS)
    np.testing.assert_array_equal(first, (x - 1) / WEIGHTS)
    for bound in (mine, theirs):
        bound()
    np.testing.assert_array_equal(mine.outputs()[0], x / WEIGHTS)
    np.testing.assert_array_equal(given, x / WEIGHTS)


def test_what_lies_there_is_read_in_place_and_gives_what_lies_there(
    device: SimulatedDriver, there: ArrayThere
) -> None:
    function = loaded(device)
    first = function(there)
    before = device.launches
    there.write(X + 1)
    second = function(there)
    assert device.launches == before + 1
    np.testing.assert_array_equal(read_there(first, device), X / WEIGHTS)
    np.testing.assert_array_equal(read_there(second, device), (X + 1) / WEIGHTS)
    np.testing.assert_array_equal(read_there(function(second), device), (X + 1) / WEIGHTS / WEIGHTS)


def test_a_call_there_launches_and_returns(device: SimulatedDriver, there: ArrayThere) -> None:
    function = loaded(device)
    first = function(there)
    device.synchronize()
    second = function(there)
    assert len(device.waiting) == 2, "the run, and the copy of its output"
    device.synchronize()
    np.testing.assert_array_equal(read_there(first, device), read_there(second, device))


def test_buffers_there_are_tied_without_a_copy(device: SimulatedDriver, there: ArrayThere) -> None:
    function, y = loaded(device), ArrayThere(device, np.zeros_like(X))
    before = len(device.allocated)
    bound = function.bind([there], [y])
    assert len(device.allocated) == before, "no buffer but the caller's"
    for values in (X, X + 1):
        there.write(values)
        bound()
        bound.synchronize()
        np.testing.assert_array_equal(y.read(), values / WEIGHTS)
    assert bound.outputs() == [y]
    mine = function.bind([there])
    mine()
    np.testing.assert_array_equal(read_there(mine.outputs()[0], device), (X + 1) / WEIGHTS)


def test_a_call_goes_into_the_stream_that_is_given() -> None:
    device = StreamingSimulation()
    function, there = loaded(device), ArrayThere(device, X)
    stream: Any = device.make_stream()
    y = ArrayThere(device, np.zeros_like(X))
    bound = function.bind([there], [y], stream=stream)
    assert not device.waiting, "what was written when it was bound is there"
    bound()
    result = function(there, stream=SimpleNamespace(cuda_stream=stream))
    assert not device.waiting, "nothing in the default one"
    assert len(stream.todo) == 3
    assert there.waited == [stream] * len(there.waited)
    ended = device.record_in(stream)
    while not device.has_happened(ended):
        pass
    for made in (y.read(), read_there(result, device)):
        np.testing.assert_array_equal(made, X / WEIGHTS)


def test_pytorchs_current_stream_is_taken_where_tensors_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    current = {"cuda:0": 0, "cuda:1": 7}
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=current[device])
    )
    tensors = [SimpleNamespace(detach=None, device=name) for name in current]
    assert [stream_of(None, one) for one in tensors] == [None, 7], "0 is the default one"
    assert stream_of(9, tensors[1]) == 9
    assert stream_of(None, X) is None


def test_weights_there_are_copied_once(device: SimulatedDriver, there: ArrayThere) -> None:
    function = loaded(device)
    weights = ArrayThere(device, WEIGHTS, skip=4)
    function.prepare({1: weights})
    weights.write(WEIGHTS + 1)
    np.testing.assert_array_equal(read_there(function(there), device), X / WEIGHTS)
    np.testing.assert_array_equal(function(X), X / WEIGHTS)


def elsewhere(device: SimulatedDriver) -> Any:
    return ArrayThere(device, X, number=1)


def of_doubles(device: SimulatedDriver) -> Any:
    return ArrayThere(device, X.astype(np.float64))


def turned(device: SimulatedDriver) -> Any:
    return ArrayThere(device, X.T)


def askew(device: SimulatedDriver) -> Any:
    return ArrayThere(device, X, skip=4)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (elsewhere, "input 0 lies on cuda:1, and what reads it runs on cuda:0"),
        (of_doubles, "input 0 has element type float64, the operator says float32"),
        (turned, r"input 0 has shape \[8, 4\], the operator says \[4, 8\]"),
        (askew, "input 0 does not lie on a multiple of 64 bytes on the device"),
    ],
)
def test_what_is_not_as_the_operator_says_is_the_callers_mistake(
    device: SimulatedDriver,
    watch: FailureWatch,
    told: list[Any],
    given: Callable[[SimulatedDriver], Any],
    sentence: str,
) -> None:
    function = loaded(device, watch=watch)
    with pytest.raises(LoadError, match=sentence):
        function(given(device))
    y = given(device)
    with pytest.raises(LoadError, match=sentence.replace("input", "output")):
        function.bind([ArrayThere(device, X)], [y])
    assert (function.failure, told) == ("", []), "the kernel is not to blame"


def test_what_lies_in_two_places_is_refused(
    device: SimulatedDriver, there: ArrayThere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opatlas.load.cuda.driver.DRIVERS", ())  # whether there is a device here or not
    function = loaded(device)
    with pytest.raises(CallerError, match="Input 0 lies on a device and output 0 on the host"):
        function.bind([there], [np.empty_like(X)])
    with pytest.raises(CallerError, match="Output 0 lies on a device and input 0 on the host"):
        function.bind([X], [there])
    with pytest.raises(CallerError, match="The operator has 1 outputs; 2 are given"):
        function.bind([there], [there, there])
    with pytest.raises(CallerError, match="A stream is for arrays that lie on a device"):
        function(X, stream=7)


def test_the_processor_takes_nothing_that_lies_there(there: ArrayThere) -> None:
    function = KernelFunction(QUOTIENT, manifest(RUN, image()), kernel=ArrayKernel(QUOTIENT, {}))
    with pytest.raises(CallerError, match="Input 1 lies on a device, and the processor computes this"):
        function.prepare({1: there})
    function.prepare({1: WEIGHTS})
    with pytest.raises(CallerError, match=r"Input 0 lies on a device, .*: give arrays of the host"):
        function(there)


def test_a_first_call_that_fails_on_the_device_is_waited_for_and_told(
    device: SimulatedDriver, watch: FailureWatch, told: list[Any], there: ArrayThere
) -> None:
    """No library is here that could compute the operator where its inputs lie."""
    faulty = kernel(device, RUN, image(scaled="beyond", inverted="inverted"))
    function = KernelFunction(QUOTIENT, manifest(RUN, image()), kernel=faulty, watch=watch)
    function.prepare({1: WEIGHTS})
    with pytest.raises(LoadError, match=r"ILLEGAL_ADDRESS.* its default cannot be run here either .torch"):
        function(there)
    assert [one["error"] for one in told] == ["DeviceFailed"]


def test_after_a_fault_the_host_computes_what_is_the_hosts(
    device: SimulatedDriver, watch: FailureWatch, there: ArrayThere
) -> None:
    function = loaded(device, watch=watch)
    device.broken = "the device answers CUDA_ERROR_ILLEGAL_ADDRESS"
    np.testing.assert_array_equal(function(X), X / WEIGHTS)
    with pytest.raises(CallerError, match=r"since the kernel failed .DeviceFailed: .*ILLEGAL_ADDRESS"):
        function(there)
