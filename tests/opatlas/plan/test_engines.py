"""Models of one process on engines that they share: right results in turns, and whatever goes wrong with one
of them ends in a clear error or in its run without engines."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from opatlas.errors import CallerError
from opatlas.graph.normal import ModelGraph
from opatlas.load.kernel import KernelFailed
from opatlas.placement.queues import NoEngine
from opatlas.plan.engines import DeadlinePassed, Engines, EngineStalled, EngineStep
from opatlas.plan.engines import machinery as module
from opatlas.plan.engines.runs import engine_steps
from opatlas.plan.executor import Executor
from opatlas.plan.making import whole
from opatlas.plan.plan import ModelPlan
from opatlas.plan.predicting import costs, predicted
from tests import by_day
from tests.opatlas.plan.c_kernels import CKernels
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.making import PLACE, Kernels, assert_same, planned, wanted
from tests.opatlas.plan.random_bodies import RandomBodies
from tests.opatlas.plan.test_concurrent import FEED, LONG_S, Moody, right, some_of, streamed, wide


class Clock:
    """Moves where a step says so: a busy host keeps an engine waiting for seconds, which is no stall."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engines() -> Iterator[Engines]:
    made = Engines(2)
    yield made
    made.close()


@pytest.fixture
def clocked(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    """Two that go by ``clock``, looked after all the time."""
    monkeypatch.setattr(module, "LOOK_S", 0.005)
    made = Engines(2, clock=clock)
    yield made
    made.close()


def step(call: Callable[[], Any], *needs: int, **more: Any) -> EngineStep:
    return EngineStep("a step", call, frozenset(needs), **more)


# ---- steps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", by_day.first(8, range(30)))
def test_steps_of_random_graphs_begin_when_what_they_need_has_ended(engines: Engines, seed: int) -> None:
    """Several at once, with times that are drawn; reference times are missing, or wrong by ten times."""
    chance = Random(seed)

    def graph() -> tuple[list[EngineStep], list[int], list[tuple[int, list[int]]]]:
        ended: list[int] = []
        began: list[tuple[int, list[int]]] = []
        steps = []
        for number in range(25):
            needs = frozenset(chance.sample(range(number), min(number, chance.randrange(4))))
            takes_s = chance.choice([0.0, 0.0, 1e-3])

            def call(number: int = number, takes_s: float = takes_s) -> None:
                began.append((number, list(ended)))
                time.sleep(takes_s)
                ended.append(number)

            said = chance.choice([None, 1e-2, 1e-3, 1e-4, math.nan])
            steps.append(EngineStep(f"step {number}", call, needs, said, chance.random() < 0.1))
        return steps, ended, began

    graphs = [graph() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        shares = [engines.share(f"model {number}") for number in range(3)]
        list(pool.map(lambda one: one[0].run(one[1][0]), zip(shares, graphs, strict=True)))
    for steps, ended, began in graphs:
        assert sorted(ended) == list(range(25))
        for number, before in began:
            assert steps[number].needs <= set(before)


def test_steps_that_need_nothing_of_each_other_run_beside_each_other(engines: Engines) -> None:
    meeting = threading.Barrier(2, timeout=LONG_S)
    engines.share("m").run([step(meeting.wait), step(meeting.wait)])


def test_what_its_whole_process_shares_runs_on_one_engine(engines: Engines) -> None:
    ran: set[str] = set()

    def call() -> None:
        time.sleep(1e-3)
        ran.add(threading.current_thread().name)

    engines.share("m").run([step(call, confined=True) for _ in range(20)])
    assert len(ran) == 1


def test_a_step_that_needs_a_later_one_is_refused(engines: Engines) -> None:
    """A circle: two that need each other."""
    with pytest.raises(CallerError, match="needs step 1, which is not before it"):
        engines.share("m").run([step(int, 1), step(int, 0)])


@pytest.mark.parametrize("number", [0, 1])
def test_steps_that_wait_for_what_never_ends_are_an_error_and_no_wait(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Were the book of who needs whom ever wrong: of the first step, and of one that comes later."""
    as_it_is = module.SharedRun.__post_init__

    def wrong(run: Any) -> None:
        as_it_is(run)
        run.lacks[number] += 1

    monkeypatch.setattr(module.SharedRun, "__post_init__", wrong)
    ran: list[int] = []
    steps = [step(partial(ran.append, 0)), step(partial(ran.append, 1), 0)]
    with pytest.raises(EngineStalled, match=f"{2 - number} steps of m wait for what never ends"):
        engines.share("m").run(steps)
    assert len(ran) == number and len(engines.living) == 2
    monkeypatch.undo()
    engines.share("m").run(steps)
    assert ran[number:] == [0, 1]


def test_what_waits_is_told_beside_what_was_expected(engines: Engines) -> None:
    engines.share("m").run([step(lambda: time.sleep(0.01), reference_s=0.01) for _ in range(6)])
    assert len(engines.waits) == 6 and all(one.waited_s >= 0 for one in engines.waits)
    last = max(engines.waits, key=lambda one: one.began_at)
    assert last.waited_s >= 0.018 and 0.01 <= last.expected_s <= 0.04
    assert set(engines.expected_waits().values()) == {0.0}


# ---- priorities, deadlines, fairness -----------------------------------------------------------------------


def order_of(engines: Engines, one: tuple[Any, float], other: tuple[Any, float], count: int = 8) -> list[str]:
    """Two models' steps, all placed while one engine is held up, in the order in which they ran."""
    ran: list[str] = []
    held, go_on = threading.Event(), threading.Event()
    with ThreadPoolExecutor(3) as pool:

        def hold() -> None:
            held.set()
            go_on.wait(LONG_S)

        holding = pool.submit(engines.share("first").run, [step(hold, reference_s=0.01)])
        assert held.wait(LONG_S)
        runs = []
        for share, deadline_s in (one, other):
            steps = [step(partial(ran.append, share.model), reference_s=0.001) for _ in range(count)]
            runs.append(pool.submit(share.run, steps, deadline_s))
            until(lambda: sum(map(len, engines._machinery._placement.queues.values())) > len(runs) * count)
        go_on.set()
        for run in (holding, *runs):
            run.result(LONG_S)
    return ran


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_priority_goes_first_and_a_near_deadline_too() -> None:
    for priority_s, deadline_s, first in ((0.0, math.inf, "a"), (60.0, math.inf, "b"), (0.0, 20.0, "b")):
        engines = Engines(1, most_head_start_s=30.0)
        a, b = engines.share("a"), engines.share("b", priority_s)
        ran = order_of(engines, (a, math.inf), (b, deadline_s))
        assert ran[0] == first and len(ran) == 16
        engines.close()


def test_a_priority_that_would_starve_others_is_bounded() -> None:
    """However urgent one says it is: what was placed earlier than the bound goes before it."""
    engines = Engines(1, most_head_start_s=0.0)
    ran = order_of(engines, (engines.share("a"), math.inf), (engines.share("b", 1e9), math.inf))
    assert ran == ["a"] * 8 + ["b"] * 8
    engines.close()


@pytest.mark.parametrize("priority_s", [-1.0, math.nan, math.inf])
def test_a_priority_that_is_none_is_refused(engines: Engines, priority_s: float) -> None:
    with pytest.raises(CallerError, match="A priority is a head start of zero seconds or more"):
        engines.share("m", priority_s)


def test_who_had_less_goes_first() -> None:
    engines = Engines(1, most_head_start_s=30.0)
    a, b = engines.share("a"), engines.share("b")
    a.had_s, a.active, b.active = 9.0, 1, 1  # both are under way elsewhere
    assert order_of(engines, (a, math.inf), (b, math.inf))[0] == "b"
    engines.close()


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, math.nan])
def test_a_deadline_that_has_passed_is_an_error_and_nothing_runs(engines: Engines, deadline_s: float) -> None:
    ran: list[int] = []
    with pytest.raises(DeadlinePassed, match="The deadline of m has passed"):
        engines.share("m").run([step(lambda: ran.append(1))], deadline_s)
    assert not ran


def test_a_deadline_that_passes_ends_the_run_and_disturbs_no_other(clock: Clock) -> None:
    engines = Engines(1, clock=clock)
    ran: list[str] = []

    def go_slow() -> None:
        clock.now += 0.03
        ran.append("slow")

    slow = [step(go_slow, *range(at)[-1:]) for at in range(30)]
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(engines.share("late").run, slow, 0.1)
        other = pool.submit(engines.share("other").run, [step(lambda: ran.append("other")) for _ in range(9)])
        other.result(LONG_S)
        with pytest.raises(DeadlinePassed, match=r"The deadline of late passed after [34] of its 30 steps"):
            late.result(LONG_S)
    assert ran.count("other") == 9 and ran.count("slow") == 4
    engines.share("after").run([step(lambda: ran.append("after"))])
    assert ran.count("slow") == 4, "what was left of it would have gone first"
    engines.close()


# ---- engines that stall or disappear -----------------------------------------------------------------------


def test_a_step_that_never_ends_is_given_up_and_others_go_on(clocked: Engines, clock: Clock) -> None:
    go_on = threading.Event()

    def hang() -> None:
        clock.now += 3600.0
        go_on.wait(LONG_S)

    share = clocked.share("hangs")
    with pytest.raises(EngineStalled, match="a step of hangs did not end; the run is given up"):
        share.run([step(hang), step(int, 0)])
    assert share.hangs and len(clocked.living) == 1
    ran: list[int] = []
    clocked.share("other").run([step(lambda: ran.append(1)) for _ in range(5)])
    assert len(ran) == 5
    go_on.set()


def test_what_waits_for_an_engine_that_disappears_runs_elsewhere(engines: Engines) -> None:
    go_on, ran = threading.Event(), list[int]()
    both = threading.Barrier(3, timeout=LONG_S)

    def hold() -> None:
        both.wait()
        go_on.wait(LONG_S)

    with ThreadPoolExecutor(3) as pool:
        held = [pool.submit(engines.share(f"h{at}").run, [step(hold)]) for at in range(2)]
        both.wait()
        run = pool.submit(engines.share("m").run, [step(lambda: ran.append(1)) for _ in range(8)])
        until(lambda: sum(map(len, engines._machinery._placement.queues.values())) == 10)
        engines.lose("engine 0")
        go_on.set()
        run.result(LONG_S)
        failed = [one.exception(LONG_S) for one in held]
    assert len(ran) == 8 and sum(isinstance(one, EngineStalled) for one in failed) == 1


def test_without_any_engine_a_run_is_an_error(engines: Engines) -> None:
    for name in engines.living:
        engines.lose(name)
    with pytest.raises(NoEngine):
        engines.share("m").run([step(int)])
    engines.close()
    with pytest.raises(NoEngine, match="closed"):
        engines.share("m").run([step(int)])


def test_an_engine_that_cannot_be_set_up_is_none() -> None:
    def enter(number: int) -> None:
        if number == 0:
            raise OSError("no memory")

    made = Engines(2, enter=enter)
    until(lambda: made.living == ["engine 1"])
    made.share("m").run([step(int)])
    made.close()


def test_engines_that_are_dropped_end_their_threads() -> None:
    made = Engines(3)
    made.share("m").run([step(int)])
    names = ("opatlas-engine-2",)
    assert any(one.name in names for one in threading.enumerate())
    del made
    until(lambda: not any(one.name in names for one in threading.enumerate()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_no_engines_and_does_not_wait_for_them(engines: Engines) -> None:
    engines.share("m").run([step(int)])
    child = os.fork()
    if child == 0:
        try:
            engines.share("m").run([step(int)])
        except NoEngine:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("said_s", [None, 0.001, 0.1, 0.0, -1.0, math.nan])
def test_reference_times_that_are_missing_or_ten_times_wrong_cost_no_step(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, said_s: float | None
) -> None:
    """Of steps that take 10 ms, and are looked at then."""
    looked, watch = threading.Event(), module.EngineMachinery._watch

    def seen(machinery: Any) -> None:
        watch(machinery)
        looked.set()

    def work() -> None:
        clock.now += 0.01
        looked.clear()
        assert looked.wait(LONG_S)

    monkeypatch.setattr(module.EngineMachinery, "_watch", seen)
    monkeypatch.setattr(module, "LEAST_STALL_S", 0.0)
    monkeypatch.setattr(module, "LOOK_S", 0.002)
    engines = Engines(1, clock=clock)
    engines.share("a").run([step(work, reference_s=said_s) for _ in range(4)])
    assert len(engines.living) == 1 and len(engines.waits) == 4
    engines.close()


# ---- models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_random_models_at_once_give_what_onnx_runtime_gives(engines: Engines, seed: int) -> None:
    made = [RandomModel(100 * seed + number, nodes=14) for number in range(3)]
    data = [one.build(3) for one in made]
    runs = []
    for number, model in enumerate(data):
        graph = ModelGraph(model)
        kernels = some_of(graph, seed)
        plan = streamed(graph, kernels) if number == 2 else planned(graph, kernels)
        runs.append(Executor(graph, plan, kernels.load, threads=3))

    def run(number: int) -> None:
        share = engines.share(f"model {number}")
        for turn in range(4):
            feed = made[number].feed(turn)
            assert_same(runs[number].run(feed, share), wanted(data[number], feed))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
    assert not any(one.fallen_back or one.in_one_stream for one in runs)
    for one in runs:
        one.close()


def test_a_plan_carries_its_steps_reference_times() -> None:
    """Paragraph 52: what was measured with nothing else at work is written into the platform's own form of
    the model, here a plan."""
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    plan = ModelPlan.from_json(predicted(planned(graph, kernels), costs(graph, {}, 9.0, 0, 1)).to_json())
    running = Executor(graph, plan, kernels.load, threads=1)
    assert running._program is not None
    times = [one.reference_s for one in engine_steps(running._program)]
    assert times == [pytest.approx(1e-6 * (step.predicted_us or math.nan)) for step in plan.steps]
    running.close()


def test_compiled_kernels_have_a_pool_of_their_engines_own(engines: Engines) -> None:
    made = RandomBodies(1)
    data = made.build()
    graph = ModelGraph(data)
    kernels = CKernels(graph)
    running = Executor(graph, planned(graph, kernels), kernels.load, threads=1)
    share = engines.share("m")
    for number in range(3):
        feed = made.feed(number)
        assert_same(running.run(feed, share), wanted(data, feed))
    running.close()


def moody(at: int, then: Callable[[], None]) -> Executor:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)

    def load(by: Any) -> Any:
        kernel: Any = kernels.load(by)
        return Moody(kernel, at, then) if kernel.operator.op_types == ("Neg",) else kernel

    return Executor(graph, planned(graph, kernels), load, threads=1)


def good(running: Executor, share: Any) -> bool:
    [found] = running.run(FEED, share)
    return np.allclose(found, wanted(wide(), FEED)[0], atol=1e-5)


def six_are_good(running: Executor, share: Any) -> bool:
    return sum(good(running, share) for _ in range(6)) == 6


def test_a_models_failing_kernel_gives_way_and_disturbs_no_other(engines: Engines) -> None:
    def fail() -> None:
        raise KernelFailed("out of luck")

    def never() -> None:
        raise AssertionError

    failing, other = moody(3, fail), moody(10**9, never)
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(six_are_good, one, engines.share(name))
            for name, one in (("failing", failing), ("other", other))
        ]
        assert all(run.result(LONG_S) for run in runs)
    assert len(failing._program.live) < len(other._program.live)  # type: ignore[union-attr]
    assert not failing.fallen_back and len(engines.living) == 2


def test_a_models_kernel_that_never_ends_costs_no_result(clocked: Engines, clock: Clock) -> None:
    go_on = threading.Event()

    def hang() -> None:
        clock.now += 3600.0
        go_on.wait(LONG_S)

    running = moody(2, hang)
    share = clocked.share("m")
    assert good(running, share) and good(running, share)
    assert running.fallen_back == "A step of the plan never ended" and len(clocked.living) == 1
    go_on.set()  # it writes to memory that nobody reads any more
    assert good(running, share)
    running.close()


def test_a_model_whose_engines_are_gone_runs_without_them(engines: Engines) -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    share = engines.share("m")
    models = [
        Executor(graph, planned(graph, kernels), kernels.load, threads=1),
        Executor(graph, whole(graph, *PLACE), kernels.load, threads=1),
    ]
    assert all(good(one, share) for one in models)
    engines.close()
    assert all(good(one, share) and right(one) for one in models)


def test_a_deadline_holds_for_a_model_in_a_framework_too(engines: Engines) -> None:
    graph = ModelGraph(wide())
    running = Executor(graph, whole(graph, *PLACE), Kernels(graph, []).load, threads=1)
    share = engines.share("m")
    with pytest.raises(DeadlinePassed):
        running.run(FEED, share, 0.0)
    assert good(running, share)


def test_the_most_engines_are_as_many_as_there_are_pools() -> None:
    for count in (0, 17):
        with pytest.raises(CallerError, match=f"There are 1 to 16 engines, not {count}"):
            Engines(count)
