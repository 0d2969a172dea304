"""Plans in several streams give what they give one step after the other, on a device of drawn orders and on
the processor; what goes wrong there ends in the same results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import helper

from opatlas.graph.normal import ModelGraph
from opatlas.load.kernel import KernelFailed
from opatlas.plan import concurrent
from opatlas.plan.arrays import memory_of
from opatlas.plan.bodies import ALONE
from opatlas.plan.checking import check_plan
from opatlas.plan.concurrent import InStreams, stream_tasks
from opatlas.plan.executor import Executor
from opatlas.plan.making import with_kernels
from opatlas.plan.plan import InvalidPlan, ModelPlan
from opatlas.plan.program import GraphProgram, Parts
from opatlas.plan.streaming import node_streams
from opatlas.streams import cpu_device
from opatlas.streams.cpu_device import CpuDevice
from opatlas.streams.ordering import findings, program_of
from tests import by_day
from tests.opatlas.plan.c_kernels import CKernels
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.making import PLACE, Kernels, assert_same, wanted
from tests.opatlas.plan.random_bodies import RandomBodies
from tests.opatlas.streams.null_device import Faults, NullDevice
from tests.opatlas.streams.work import without_each_wait
from tests.tuning.graph.making import model

LONG_S = 30.0


def streamed(graph: ModelGraph, kernels: Kernels, count: int = 3) -> ModelPlan:
    """As it comes back from JSON, each node taking the same."""
    placed = node_streams(graph, {}, count)
    plan = with_kernels(graph, kernels.candidates, *PLACE, None, placed)
    made = ModelPlan.from_json(plan.to_json())
    check_plan(made, graph, *PLACE)
    return made


def some_of(graph: ModelGraph, seed: int) -> Kernels:
    """Kernels for about half of the operators."""
    every = list(graph.operators())
    share = np.random.default_rng(seed).random(len(every))
    return Kernels(graph, [at for at, one in zip(every, share, strict=True) if one < 0.5])


@pytest.mark.parametrize("seed", by_day.first(4, range(12)))
def test_a_random_model_gives_what_onnx_runtime_gives_in_any_order(seed: int) -> None:
    made = RandomModel(seed, nodes=16)
    for only in (None, 3):
        data = made.build(only)
        graph = ModelGraph(data)
        kernels = some_of(graph, seed)
        plan = streamed(graph, kernels)
        for order in range(4):
            running = Executor(graph, plan, kernels.load, threads=3, device=NullDevice(order))
            for feed in (made.feed(1), made.feed(2), made.feed(1)):
                assert_same(running.run(feed), wanted(data, feed))
            assert not running.in_one_stream


def test_random_models_do_use_several_streams() -> None:
    """Else the test before this one would say nothing."""
    graphs = [ModelGraph(RandomModel(seed, nodes=16, control=False).build(3)) for seed in range(12)]
    counts = [streamed(graph, some_of(graph, seed)).stream_count for seed, graph in enumerate(graphs)]
    assert sum(count > 1 for count in counts) >= 6


@pytest.mark.parametrize("seed", by_day.first(3, range(8)))
def test_so_it_does_on_the_processor(seed: int) -> None:
    made = RandomModel(seed, nodes=16, control=seed % 2 == 0)
    data = made.build(3)
    graph = ModelGraph(data)
    kernels = some_of(graph, seed)
    running = Executor(graph, streamed(graph, kernels), kernels.load, threads=3)
    for number in range(6):
        feed = made.feed(number)
        assert_same(running.run(feed), wanted(data, feed))
    assert not running.in_one_stream
    running.close()


@pytest.mark.parametrize("seed", by_day.first(2, range(6)))
def test_so_do_models_of_bodies_with_compiled_kernels(seed: int) -> None:
    made = RandomBodies(seed)
    data = made.build()
    graph = ModelGraph(data)
    kernels = CKernels(graph)
    running = Executor(graph, streamed(graph, kernels, 2), kernels.load, threads=2)
    for number in range(3):
        feed = made.feed(number)
        assert_same(running.run(feed), wanted(data, feed))
    running.close()


def wide(ways: int = 3, length: int = 4) -> bytes:
    """Chains beside each other, and their sum."""
    nodes, ends = [], []
    for way in range(ways):
        last = "x"
        for at in range(length):
            kind = ("Relu", "Tanh", "Neg", "Abs", "Sigmoid")[(way + at) % 5]
            nodes.append(helper.make_node(kind, [last], [f"v{way}_{at}"]))
            last = f"v{way}_{at}"
        ends.append(last)
    nodes.append(helper.make_node("Sum", ends, ["y"]))
    made = model(nodes, {"x": (32, 32)}, ["y"])
    made.ir_version = 10
    return made.SerializeToString()


FEED = {"x": np.linspace(-2, 2, 32 * 32, dtype=np.float32).reshape(32, 32)}


@cache
def expected() -> tuple[np.ndarray, ...]:
    return tuple(wanted(wide(), FEED))


def right(running: Executor) -> bool:
    found = running.run(FEED)
    return all(np.allclose(one, other, atol=1e-5) for one, other in zip(found, expected(), strict=True))


def test_chains_beside_each_other_are_a_step_each_without_kernels() -> None:
    graph = ModelGraph(wide())
    plan = streamed(graph, Kernels(graph, []))
    assert [(step.nodes, step.stream) for step in plan.steps] == [
        ((0, 1, 2, 3), 0),
        ((4, 5, 6, 7), 1),
        ((8, 9, 10, 11), 2),
        ((12,), plan.steps[3].stream),
    ]


def settled(graph: ModelGraph, kernels: Kernels) -> GraphProgram:
    program = GraphProgram(graph, streamed(graph, kernels), Parts(kernels.load, 1), ALONE)
    program.settle(memory_of(program.size), {})
    return program


class Stepwise:
    """A kernel that notes where it reads and writes, and finds its output's memory full of garbage."""

    binds_outputs = True

    def __init__(self, kernel: Any, noted: list[tuple[str, list[np.ndarray], list[np.ndarray]]]) -> None:
        self._kernel, self._noted, self.operator = kernel, noted, kernel.operator
        self.prepare, self.close = kernel.prepare, kernel.close

    def bind(self, inputs: Any, outputs: Any = None) -> Callable[[], None]:
        bound, read = self._kernel.bind(inputs, outputs), [*inputs.values()]

        def call() -> None:
            self._noted.append(("+".join(self.operator.op_types), read, outputs))
            for output in outputs:
                output.fill(np.nan)
            bound()

        return call


def test_a_step_reads_an_output_or_a_copied_variable_and_writes_where_memory_was_asked_for() -> None:
    """[0032]: the executor receives the inputs (the operator's before, or copied ones), asks for the outputs'
    memory, then runs the kernel."""
    graph = ModelGraph(wide())
    kernels, noted = Kernels(graph), list[tuple[str, list[np.ndarray], list[np.ndarray]]]()
    running = Executor(
        graph, streamed(graph, kernels), lambda by: Stepwise(kernels.load(by), noted), threads=3
    )
    assert running.peak_bytes and not noted, "memory is there before any step runs"
    assert right(running)
    for _ in range(2):  # the first run is one step after the other, these are in streams
        noted.clear()
        assert right(running)
        made = {output.ctypes.data for _, _, outputs in noted for output in outputs}
        copied = {array.ctypes.data for _, read, _ in noted for array in read} - made
        assert len(noted) == 13 and len(copied) == 1, "what no step made is the model's one input"
        assert FEED["x"].ctypes.data not in copied | made, "as a copy"
        for kind, read, outputs in noted:
            assert len(read) == (3 if kind == "Sum" else 1)
            assert not any(np.shares_memory(one, other) for one in read for other in outputs)
    assert not running.in_one_stream and not running.fallen_back
    running.close()


def test_without_an_event_the_checker_tells_and_a_wrong_result_comes_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    tasks = stream_tasks(settled(graph, kernels))
    less = [one for _, one in without_each_wait(program_of(tasks))]
    assert len(less) == 2  # the sum waits for two other chains
    for program in less:
        [found] = findings(tasks, program)
        assert "(Sum) (stream" in found and "reads what Step" in found
        monkeypatch.setattr(concurrent, "findings", lambda *_: [])
        monkeypatch.setattr(concurrent, "program_of", lambda _, program=program: program)
        results = []
        for order in range(20):
            running = Executor(
                graph, streamed(graph, kernels), kernels.load, threads=3, device=NullDevice(order)
            )
            running.run({"x": -FEED["x"]})
            results.append(right(running))
        assert not all(results)
        monkeypatch.undo()


def test_a_program_that_is_not_sound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    monkeypatch.setattr(
        concurrent, "program_of", lambda tasks: next(one for _, one in without_each_wait(program_of(tasks)))
    )
    with pytest.raises(InvalidPlan, match=r"cannot run in streams: Step .* does not wait"):
        InStreams(settled(graph, kernels), NullDevice(0))


@pytest.mark.parametrize("hangs_at", by_day.only([5], [0, 5, 12]))
def test_a_kernel_that_never_ends_costs_no_result(hangs_at: int) -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    device = NullDevice(3, Faults(hangs_at=hangs_at))
    running = Executor(graph, streamed(graph, kernels), kernels.load, threads=3, device=device)
    assert right(running) and right(running)  # the second is the first in streams
    assert running.fallen_back == "A stream of the plan never ended"
    device.let_hanging_go_on()  # it writes to memory that nobody reads any more
    assert right(running)
    running.close()


def test_a_device_that_disappears_costs_no_result() -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    device = NullDevice(3, Faults(lost_at=7))
    running = Executor(graph, streamed(graph, kernels), kernels.load, threads=3, device=device)
    assert right(running) and right(running) and right(running)
    assert running.fallen_back


def test_an_event_that_never_comes_costs_no_result_and_the_streams() -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    device = NullDevice(3, Faults(swallows=1))
    running = Executor(graph, streamed(graph, kernels), kernels.load, threads=3, device=device)
    assert right(running) and right(running) and right(running)
    assert "did not end" in running.in_one_stream and not running.fallen_back


class Moody:
    """A kernel that does ``then`` at its n-th run."""

    binds_outputs = True

    def __init__(self, kernel: Any, at: int, then: Callable[[], None]) -> None:
        self._kernel, self._at, self._then, self.runs = kernel, at, then, 0
        self.operator = kernel.operator

    def prepare(self, constants: Any) -> None:
        self._kernel.prepare(constants)

    def bind(self, inputs: Any, outputs: Any = None) -> Callable[[], None]:
        bound = self._kernel.bind(inputs, outputs)

        def call() -> None:
            self.runs += 1
            if self.runs == self._at:
                self._then()
            bound()

        return call

    def close(self) -> None:
        self._kernel.close()


def moody(graph: ModelGraph, op_type: str, at: int, then: Callable[[], None]) -> Executor:
    kernels = Kernels(graph)

    def load(by: Any) -> Any:
        kernel = kernels.load(by)
        return Moody(kernel, at, then) if kernel.operator.op_types == (op_type,) else kernel

    return Executor(graph, streamed(graph, kernels), load, threads=3)


def test_a_kernel_that_fails_in_its_stream_gives_way_in_that_run() -> None:
    def fail() -> None:
        raise KernelFailed("out of luck")

    running = moody(ModelGraph(wide()), "Neg", 3, fail)
    assert all(right(running) for _ in range(4))
    assert "failed: out of luck" in running.in_one_stream and not running.fallen_back
    running.close()


def test_a_kernel_that_hangs_on_the_processor_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent, "LEAST_TIMEOUT_S", 0.2)
    monkeypatch.setattr(concurrent, "PATIENCE", 0.0)
    monkeypatch.setattr(cpu_device, "DRAINING_S", 0.1)
    go_on = threading.Event()
    running = moody(ModelGraph(wide()), "Neg", 2, lambda: go_on.wait(LONG_S) and None)
    assert right(running) and right(running)
    assert running.fallen_back
    go_on.set()
    assert right(running)
    running.close()


def test_inputs_that_the_model_refuses_leave_the_streams_be() -> None:
    made = model(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Tanh", ["x"], ["t"]),
            helper.make_node("Gather", ["r", "i"], ["g"]),
            helper.make_node("Gather", ["t", "i"], ["h"]),
            helper.make_node("Add", ["g", "h"], ["y"]),
        ],
        {"x": (4, 4)}, ["y"],
    )  # fmt: skip
    made.graph.input.append(helper.make_tensor_value_info("i", 7, [1]))
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    kernels = Kernels(graph, [0, 1])
    running = Executor(graph, streamed(graph, kernels, 2), kernels.load, threads=2)
    feed = {"x": np.ones((4, 4), np.float32), "i": np.array([2])}
    for _ in range(2):
        assert running.run(feed)[0].shape == (1, 4)
    with pytest.raises(Exception, match="out of data bounds"):
        running.run(feed | {"i": np.array([9])})
    assert running.run(feed)[0].shape == (1, 4)
    assert not running.in_one_stream and not running.fallen_back
    running.close()


def test_streams_share_no_memory_with_each_other_or_with_the_inputs() -> None:
    graph = ModelGraph(wide(2, 6))
    kernels = Kernels(graph)
    plan = streamed(graph, kernels, 2)
    running = Executor(graph, plan, kernels.load, threads=2)
    assert running.peak_bytes <= (1 + 2 * 3) * 32 * 32 * 4  # each chain needs two or three places
    program = settled(graph, kernels)
    where: dict[int, set[int]] = {}
    for step in program.plan.steps:
        for number in step.outputs:
            where.setdefault(step.stream, set()).add(program.arrays[0][number].ctypes.data)
    [x] = graph.inputs
    places = [*where.values(), {program.arrays[0][x].ctypes.data}]
    assert sum(map(len, places)) == len(set().union(*places))
    running.close()


def test_kernels_in_streams_have_pools_of_their_own() -> None:
    graph = ModelGraph(wide())
    kernels = CKernels(graph)
    device = concurrent.cpu_device(settled(graph, kernels), 1)
    assert device._enter is not None
    device.close()
    plain = concurrent.cpu_device(settled(graph, Kernels(graph, [])), 1)
    assert isinstance(plain, CpuDevice) and plain._enter is None


def test_more_streams_than_threads_are_not_begun() -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    running = Executor(graph, streamed(graph, kernels), kernels.load, threads=2)
    assert running.in_one_stream == "The plan has 3 streams for 2 threads."
    assert right(running) and right(running)
