"""Whole models and regions in OpenVINO and PyTorch: as ONNX Runtime runs them, chosen only if faster, and
never a reason to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import opatlas
from opatlas.client import Client
from opatlas.errors import CallerError, LoadError
from opatlas.evidence import Ratios
from opatlas.graph.normal import ModelGraph
from opatlas.load.kernel import KernelFailed
from opatlas.plan import choosing, compiling, regions
from opatlas.plan.checking import check_plan
from opatlas.plan.choosing import by_framework, choose, is_better
from opatlas.plan.closeness import is_close
from opatlas.plan.executor import Executor
from opatlas.plan.line_up import HOPELESS_ROUNDS, TimedInTurns, line_up
from opatlas.plan.making import NodeChoice, whole, with_kernels
from opatlas.plan.plan import ByKernel, ModelPlan
from opatlas.plan.said import said_of
from opatlas.session.kept_choice import KeptChoice
from tests import by_day
from tests.configuring import configured
from tests.installed import needs
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.making import PLACE, Kernels, assert_same, executor, planned, wanted
from tests.tuning.graph.making import model

needs("openvino", "torch", "jax")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    """What compilers made is kept here, and found by no other test."""
    with configured(cache=tmp_path / "cache"):
        yield tmp_path / "cache"


def in_whole(graph: ModelGraph, framework: str) -> Executor:
    plan = by_framework(whole(graph, *PLACE), framework)
    check_plan(ModelPlan.from_json(plan.to_json()), graph, *PLACE)
    return Executor(graph, plan, lambda by: pytest.fail("it has no kernel"), threads=1)


@pytest.mark.parametrize("framework", ["openvino", "pytorch", "xla"])
@pytest.mark.parametrize("seed", by_day.first(2, range(4)))
def test_a_whole_model_gives_what_onnx_runtime_gives(framework: str, seed: int) -> None:
    made = RandomModel(seed, control=False)
    data = made.build(3)
    running = in_whole(ModelGraph(data), framework)
    results = []
    for feed in (made.feed(1), made.feed(2)):
        results.append((running.run(feed), wanted(data, feed)))
    for found, expected in results:  # what the first run gave is the caller's own
        assert_same(found, expected)


@pytest.mark.parametrize("framework", ["openvino", "pytorch", "xla"])
def test_regions_between_kernels_run_in_other_frameworks_too(framework: str) -> None:
    made = RandomModel(3, control=False)
    data = made.build(3)
    graph = ModelGraph(data)
    kernels = Kernels(graph, range(0, len(graph.nodes), 3))
    plan = by_framework(planned(graph, kernels), framework)
    assert {step.by.framework for step in plan.steps if step.by not in plan.kernels} == {framework}  # type: ignore[union-attr]
    running = executor(graph, kernels, plan)
    for feed in (made.feed(1), made.feed(2)):
        assert_same(running.run(feed), wanted(data, feed))


def views() -> bytes:
    """Outputs that PyTorch would give as views: of the input, of a weight, of each other."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Transpose", ["r"], ["turned"], perm=[1, 0]),
        helper.make_node("Reshape", ["r", "flat"], ["line"]),
    ]
    made = model(nodes, {"x": (3, 4)}, ["same", "r", "turned", "line"], {"flat": np.array([12])})
    made.ir_version = 8
    return made.SerializeToString()


def test_what_pytorch_gives_as_a_view_is_the_callers_own() -> None:
    data, feed = views(), {"x": np.arange(-6, 6, dtype=np.float32).reshape(3, 4)}
    found = in_whole(ModelGraph(data), "pytorch").run(feed)
    assert_same(found, wanted(data, feed))
    assert all(one.flags.c_contiguous for one in found)
    arrays = [*found, feed["x"]]
    for at, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[at + 1 :])


def test_a_model_that_a_framework_refuses_says_why_and_runs_in_another() -> None:
    made = RandomModel(0, nodes=0)
    made.loop()
    data = made.build(1)
    graph = ModelGraph(data)
    with pytest.raises(LoadError, match=r"PyTorch has no call for node 0 \(control flow \(Loop\)\)"):
        in_whole(graph, "pytorch")
    found = choose(
        graph, {}, PLACE, lambda plan: Executor(graph, plan, lambda by: None, threads=1),  # type: ignore[arg-type,return-value]
        made.feed(), 1, 0.0, frameworks=("pytorch",),
    )  # fmt: skip
    assert "control flow" in found.refused["PyTorch eager"]
    assert_same(found.executor.run(made.feed()), wanted(data, made.feed()))


def chain() -> bytes:
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    made = model(nodes, {"x": (8, 8)}, ["y"])
    made.ir_version = 8
    return made.SerializeToString()


FEED = {"x": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)}


class Wrong:
    """A framework that computes something else, or fails."""

    def __init__(self, part: regions.ModelPart, answer: Callable[[Any], Any]) -> None:
        self._answer = answer

    def run(self, inputs: Any) -> Any:
        return [self._answer(inputs[0])]

    def bind(self, inputs: Any, outputs: Any) -> Any:
        raise NotImplementedError


def fail(x: Any) -> Any:
    raise KernelFailed("out of luck")


@pytest.fixture
def openvino_gives(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], None]:
    real = regions.open_region

    def give(answer: Callable[[Any], Any]) -> None:
        def opened(framework: str, part: regions.ModelPart, threads: int, **options: Any) -> Any:
            return (
                Wrong(part, answer) if framework == "openvino" else real(framework, part, threads, **options)
            )

        monkeypatch.setattr("opatlas.plan.executor.open_region", opened)

    return give


def chosen(graph: ModelGraph, *frameworks: str) -> choosing.Chosen:
    def build(plan: ModelPlan) -> Executor:
        return Executor(graph, plan, lambda by: pytest.fail("it has no kernel"), threads=1)

    return choose(graph, {}, PLACE, build, FEED, 1, 0.0, frameworks=frameworks)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(lambda x: np.tanh(x), "other values than the whole model"), (fail, "out of luck")],
)
def test_who_is_wrong_or_fails_takes_no_part(openvino_gives: Any, answer: Any, why: str) -> None:
    openvino_gives(answer)
    found = chosen(ModelGraph(chain()), "openvino")
    assert why in found.refused["OpenVINO"] and found.standings == ()
    assert_same(found.executor.run(FEED), wanted(chain(), FEED))


def test_a_framework_that_fails_later_goes_over_to_onnx_runtime_in_that_run(openvino_gives: Any) -> None:
    runs: list[int] = []

    def twice(x: Any) -> Any:
        runs.append(1)
        return -np.tanh(x) if len(runs) <= 2 else fail(x)

    openvino_gives(twice)
    running = in_whole(ModelGraph(chain()), "openvino")
    for _ in range(4):
        assert_same(running.run(FEED), wanted(chain(), FEED))
    assert len(runs) == 3  # not asked again


@pytest.fixture
def openvino_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    def standings(runs: Any, seconds: float) -> dict[str, TimedInTurns]:
        ratios = {name: 2.0 if name.startswith("OpenVINO") else 1.0 for name in runs}
        return {
            name: TimedInTurns(name, 10.0 / ratio, Ratios(ratio, 0.9 * ratio, 1.1 * ratio))
            for name, ratio in ratios.items()
        }

    monkeypatch.setattr(choosing, "line_up", standings)


def test_a_session_runs_by_the_fastest_framework_says_so_and_remembers(
    tmp_path: Path, openvino_wins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Client(offline=True, cache=tmp_path) as client,
        opatlas.Session(chain(), client=client, frameworks=["openvino"]) as session,
    ):
        first, second = session.standings
        assert (first.said, second.said) == ("ONNX Runtime, the whole model", "OpenVINO, the whole model")
        assert said_of(session.plan) == "OpenVINO, the whole model"
        assert second.predicted_us == session.plan.predicted_us != first.predicted_us
        assert_same(session.run(None, FEED), wanted(chain(), FEED))
        [row] = session.breakdown(FEED)
        assert row.by == "OpenVINO" and row.us > 0
    monkeypatch.setattr(choosing, "line_up", lambda runs, seconds: pytest.fail("it was timed again"))
    with (
        Client(offline=True, cache=tmp_path) as client,
        opatlas.Session(chain(), client=client, frameworks=["openvino"]) as session,
    ):
        assert said_of(session.plan) == "OpenVINO, the whole model" and session.standings == ()
        assert_same(session.run(None, FEED), wanted(chain(), FEED))
    # Gone since: chosen anew, without it.
    monkeypatch.setattr(regions, "is_installed", lambda framework: framework == "onnxruntime")
    with (
        Client(offline=True, cache=tmp_path) as client,
        opatlas.Session(chain(), client=client, frameworks=["openvino"]) as session,
    ):
        assert said_of(session.plan) == "ONNX Runtime, the whole model"
        assert_same(session.run(None, FEED), wanted(chain(), FEED))


def test_who_was_far_behind_is_not_loaded_again_when_other_kernels_are_known(
    tmp_path: Path, openvino_wins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, ...]] = []
    real = choosing.choose

    def chosen_anew(*given: Any, frameworks: Any, **named: Any) -> Any:
        tried.append(frameworks)
        return real(*given, frameworks=frameworks, **named)

    monkeypatch.setattr("opatlas.session.session.choose", chosen_anew)
    for artifacts in ("one", "others"):  # other kernels are known: what was chosen is not what is wanted
        monkeypatch.setattr(KeptChoice, "_name", lambda self, name=artifacts: self._fact_of("plan", name))
        with (
            Client(offline=True, cache=tmp_path) as client,
            opatlas.Session(chain(), client=client, frameworks=["openvino", "pytorch"]) as session,
        ):
            assert said_of(session.plan) == "OpenVINO, the whole model"
    assert tried == [("openvino", "pytorch"), ("openvino",)]  # PyTorch took twice as long


def test_what_a_busy_host_left_undecided_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def standings(runs: Any, seconds: float) -> dict[str, TimedInTurns]:
        asked.append(list(runs))
        ratios = [Ratios(1.0, 1.0, 1.0), Ratios(6.0, 0.2, 15.0)]
        return {name: TimedInTurns(name, 10.0, one) for name, one in zip(runs, ratios, strict=True)}

    asked: list[list[str]] = []
    monkeypatch.setattr(choosing, "line_up", standings)
    for _ in range(2):
        with (
            Client(offline=True, cache=tmp_path) as client,
            opatlas.Session(chain(), client=client, frameworks=["openvino"]) as session,
        ):
            assert said_of(session.plan) == "ONNX Runtime, the whole model"
    assert len(asked) == 2 and len(asked[1]) == 2


def test_a_framework_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with (
        Client(offline=True, cache=tmp_path) as client,
        pytest.raises(CallerError, match="no framework 'tensorflow' to try; there are openvino"),
    ):
        opatlas.Session(chain(), client=client, frameworks=["tensorflow"])


def test_a_compiler_that_takes_too_long_is_ended_and_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ModelGraph(chain())
    with pytest.raises(LoadError, match=r"torch\.compile takes longer than 0 s"):
        compiling.compile_ahead("torch.compile", graph, 1, 0.01)
    monkeypatch.setattr(
        choosing, "compile_ahead", lambda name, graph, threads, left_s: pytest.fail("no time is left")
    )
    found = choose(
        graph, {}, PLACE, lambda plan: Executor(graph, plan, lambda by: None, threads=1),  # type: ignore[arg-type,return-value]
        FEED, 1, 0.0, frameworks=("torch.compile",), loading_s=0.0,
    )  # fmt: skip
    assert found.refused == {"torch.compile": "0 s were for loading frameworks, and are over"}


def test_a_framework_for_which_memory_does_not_suffice_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "lacking", lambda wanted: f"{wanted} B are needed")
    assert chosen(ModelGraph(chain()), "openvino").refused == {"OpenVINO": "0 B are needed"}


def test_an_element_type_that_pytorch_lacks_is_refused() -> None:
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])], "strings",
            [helper.make_tensor_value_info("x", TensorProto.STRING, [2])],
            [helper.make_tensor_value_info("y", TensorProto.STRING, [2])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )  # fmt: skip
    made.ir_version = 8
    with pytest.raises(LoadError, match="PyTorch has no call for node 0"):
        in_whole(ModelGraph(made.SerializeToString()), "pytorch")


def test_the_hopeless_take_no_further_part_and_are_told_of() -> None:
    def long() -> None:
        slow.append(1)
        sum(range(3_000_000))

    slow: list[int] = []
    standings = line_up({"a": lambda: sum(range(100)), "b": long}, seconds=0.0)
    assert len(slow) == 2 + 2 * HOPELESS_ROUNDS  # beside a turn's timed run, one that is not
    assert standings["b"].ratios.high < 1


def test_who_was_disturbed_once_is_not_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: dict[str, list[float]] = {"a": [], "b": []}

    def turn(run: Any, once_s: float) -> float:
        name = run()
        turns[name].append(500.0 if name == "b" and len(turns["b"]) < HOPELESS_ROUNDS - 1 else 10.0)
        return turns[name][-1]

    monkeypatch.setattr("opatlas.plan.line_up._turn_us", turn)
    standings = line_up({"a": lambda: "a", "b": lambda: "b"}, seconds=0.0)
    assert len(turns["b"]) == len(turns["a"]) and standings["b"].ratios.ratio == 1.0


def test_what_xla_compiled_in_another_process_is_kept_and_a_damaged_file_is_made_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opatlas.plan.regions import xla

    graph = ModelGraph(chain())
    compiling.compile_ahead("xla", graph, 1, 280)
    (kept,) = (cache / "xla").iterdir()
    code, compile_program = kept.read_bytes(), xla.compile_program
    monkeypatch.setattr(xla, "compile_program", lambda *_: pytest.fail("it was compiled before"))
    assert all(map(is_close, in_whole(graph, "xla").run(FEED), wanted(chain(), FEED)))
    monkeypatch.setattr(xla, "compile_program", compile_program)
    for damaged in (b"", code[:-1], code[:40] + bytes([code[40] ^ 1]) + code[41:]):
        kept.write_bytes(damaged)
        assert all(map(is_close, in_whole(graph, "xla").run(FEED), wanted(chain(), FEED)))
        assert kept.read_bytes() != damaged
    (cache / "xla").chmod(0o777)
    with pytest.raises(LoadError, match="open for others to write into"):
        in_whole(graph, "xla")


@pytest.mark.nightly
@pytest.mark.slow
def test_torch_compile_runs_a_whole_model_from_what_another_process_compiled(cache: Path) -> None:
    graph = ModelGraph(chain())
    compiling.compile_ahead("torch.compile", graph, 1, 280)
    kept = set((cache / "inductor").rglob("*.so"))
    assert kept
    running = in_whole(graph, "torch.compile")
    assert set((cache / "inductor").rglob("*.so")) == kept
    found = running.run(FEED)
    assert all(map(is_close, found, wanted(chain(), FEED)))


@pytest.mark.parametrize(
    ("ratio", "low", "framework", "plan"),
    [
        (1.5, 1.03, True, True),
        (1.075, 0.983, True, False),
        (1.039, 1.013, True, False),
        (1.3, 0.97, False, False),
        (1.01, 1.0, False, False),
    ],
)
def test_a_framework_runs_where_it_is_probably_faster_a_plan_of_parts_beyond_doubt(
    ratio: float, low: float, framework: bool, plan: bool
) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])]
    graph = ModelGraph(model(nodes, {"x": (4,)}, ["y"]).SerializeToString())
    kernel = NodeChoice(ByKernel("o1:a", "0" * 64, (), "a kernel"), 1.0)
    alone, parts = by_framework(whole(graph, *PLACE), "openvino"), with_kernels(graph, {0: kernel}, *PLACE)
    found = Ratios(ratio, low, 2.0)
    assert (is_better(found, alone), is_better(found, parts)) == (framework, plan)
