"""What no plan takes is plain ONNX Runtime's: options, providers, models, and failures of our own."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.client import Client
from opatlas.errors import CallerError, InvalidModel
from opatlas.identity import Setting
from opatlas.session.surface import SESSION_OPTIONS, Treatment
from tests.opatlas.plan.making import assert_same

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.full((4, 4), 2, np.float32)
SPECIAL = ort.OrtValue.ortvalue_from_numpy(5 * W)


def threads(count: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = count
    return options


def product(batch: Any = 3, *, external: bool = False) -> bytes:
    """``y = relu(x @ w)``; ``external``: ``w`` lies in a file ``w.bin``."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 4]) for name in "xy"]
    weight = numpy_helper.from_array(W, "w")
    if external:
        set_external_data(weight, "w.bin", 0, W.nbytes)
        weight.ClearField("raw_data")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made.SerializeToString()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., opatlas.Session]]:
    with Client(offline=True, cache=tmp_path / "cache", setting=Setting(threads=1)) as client:
        yield lambda *given, **named: opatlas.Session(*given, client=client, frameworks=[], **named)


@pytest.fixture
def own_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For sessions that make their client themselves."""
    monkeypatch.setattr(
        opatlas.session.session, "Client", lambda **named: Client(offline=True, cache=tmp_path, **named)
    )


def outcome(session: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """What a session gives over :data:`X`, or the type of what it raises."""
    try:
        return session(*given, **named).run(None, {"x": X})
    except Exception as error:
        return type(error)


def assert_same_outcome(found: Any, expected: Any) -> None:
    if isinstance(expected, type):
        assert found is expected
    else:
        assert_same(found, expected)


# ---- options ----------------------------------------------------------------------------------------


def custom_ops(folder: Path) -> str:
    """A library of custom operators that has none."""
    source, library = folder / "ops.c", folder / "ops.so"
    source.write_text("void *RegisterCustomOps(void *options, const void *api) { return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return str(library)


def first_device() -> list[Any]:
    return [one for one in ort.get_ep_devices() if one.ep_name == "CPUExecutionProvider"][:1]


OPTIONS: dict[str, Callable[[Any, Path], object]] = {
    "add_free_dimension_override_by_denotation": lambda o, _: (
        o.add_free_dimension_override_by_denotation("BATCH", 3)
    ),
    "add_initializer": lambda o, _: o.add_initializer("w", SPECIAL),
    "add_external_initializers": lambda o, _: o.add_external_initializers(["w"], [SPECIAL]),
    "add_external_initializers_from_files_in_memory": lambda o, _: (
        o.add_external_initializers_from_files_in_memory(["w.bin"], [(5 * W).tobytes()], [W.nbytes])
    ),
    "register_custom_ops_library": lambda o, folder: o.register_custom_ops_library(custom_ops(folder)),
    "add_provider": lambda o, _: o.add_provider("CPUExecutionProvider", {}),
    "add_provider_for_devices": lambda o, _: o.add_provider_for_devices(first_device(), {}),
    "set_provider_selection_policy": lambda o, _: (
        o.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    ),
    "set_provider_selection_policy_delegate": lambda o, _: (
        o.set_provider_selection_policy_delegate(lambda devices, *_: list(devices)[:1])
    ),
    "add_session_config_entry": lambda o, _: (
        o.add_session_config_entry("session.intra_op.allow_spinning", "0")
    ),
    "set_ep_context_data_read_func": lambda o, _: o.set_ep_context_data_read_func(lambda *_: None, 100),
    "set_load_cancellation_flag": lambda o, _: o.set_load_cancellation_flag(True),
    "execution_mode": lambda o, _: setattr(o, "execution_mode", ort.ExecutionMode.ORT_PARALLEL),
    "execution_order": lambda o, _: setattr(o, "execution_order", ort.ExecutionOrder.PRIORITY_BASED),
    "graph_optimization_level": lambda o, _: (
        setattr(o, "graph_optimization_level", ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    ),
    "optimized_model_filepath": lambda o, folder: (
        setattr(o, "optimized_model_filepath", str(folder / "optimised.onnx"))
    ),
    "enable_profiling": lambda o, folder: (
        setattr(o, "enable_profiling", True), setattr(o, "profile_file_prefix", str(folder / "profile"))
    ),
    "enable_cpu_mem_arena": lambda o, _: setattr(o, "enable_cpu_mem_arena", False),
    "enable_mem_pattern": lambda o, _: setattr(o, "enable_mem_pattern", False),
    "enable_mem_reuse": lambda o, _: setattr(o, "enable_mem_reuse", False),
    "use_deterministic_compute": lambda o, _: setattr(o, "use_deterministic_compute", True),
    "use_per_session_threads": lambda o, _: setattr(o, "use_per_session_threads", False),
}  # fmt: skip


def test_every_option_that_is_handed_on_is_tried() -> None:
    handed_on = {name for name, (treatment, _) in SESSION_OPTIONS.items() if treatment is Treatment.HANDED_ON}
    assert handed_on == set(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_no_plan_honours_is_handed_on(
    make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    model = product(external=name.startswith("add_external"))
    options = []
    for folder in (tmp_path / "theirs", tmp_path / "ours"):
        folder.mkdir()
        options.append(ort.SessionOptions())
        try:
            OPTIONS[name](options[-1], folder)
        except Exception as error:  # what this machine cannot be asked for
            pytest.skip(f"ONNX Runtime refuses it: {error}")
    expected = outcome(ort.InferenceSession, model, options[0])
    caplog.set_level(logging.WARNING, "opatlas")
    assert_same_outcome(outcome(make, model, options[1]), expected)
    if not isinstance(expected, type):
        session = make(model, options[1])
        assert list(session.refused) == ["opatlas"] and name in session.refused["opatlas"]
        assert [one.message for one in caplog.records if name in one.message]


def test_what_the_options_ask_for_is_there(make: Any, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    OPTIONS["optimized_model_filepath"](options, tmp_path)
    OPTIONS["enable_profiling"](options, tmp_path)
    session = make(product(), options)
    session.run(None, {"x": X})
    assert onnx.load(tmp_path / "optimised.onnx").graph.node
    assert Path(session.end_profiling()).is_relative_to(tmp_path)
    assert session.get_profiling_start_time_ns() > 0
    assert session.get_session_options().enable_profiling


@pytest.mark.parametrize(
    "set_to",
    [
        {},
        {"intra_op_num_threads": 1},
        {"log_severity_level": 3, "log_verbosity_level": 1, "logid": "mine", "inter_op_num_threads": 3},
        {"graph_optimization_level": ort.GraphOptimizationLevel.ORT_ENABLE_ALL},
        {"execution_mode": ort.ExecutionMode.ORT_SEQUENTIAL, "profile_file_prefix": "mine"},
    ],
)
def test_options_that_a_plan_does_leave_the_plan(make: Any, set_to: dict[str, Any]) -> None:
    options = ort.SessionOptions()
    for name, value in set_to.items():
        setattr(options, name, value)
    session = make(product(), options)
    assert not session.refused and session.plan.model == session.graph.key
    assert session.get_session_options() is options


def test_free_dimensions_are_sizes_to_plan_at(make: Any) -> None:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 3)
    session, theirs = make(product("batch"), options), ort.InferenceSession(product("batch"), options)
    assert not session.refused
    assert_same(session.run(None, {"x": X}), theirs.run(None, {"x": X}))
    assert session.get_inputs()[0].shape == theirs.get_inputs()[0].shape == [3, 4]
    with pytest.raises(Exception) as expected:
        theirs.run(None, {"x": X[:2]})
    with pytest.raises(expected.type, match="invalid dimensions"):
        session.run(None, {"x": X[:2]})


def test_options_that_nobody_has_seen_being_made_are_handed_on(make: Any) -> None:
    unseen = ort.InferenceSession(product()).get_session_options()
    session = make(product(), unseen)
    assert "nobody knows what they say" in session.refused["opatlas"]
    assert_same(session.run(None, {"x": X}), [np.maximum(X @ W, 0)])


@pytest.mark.parametrize("count", [-1, 70])
def test_threads_that_cannot_be_are_onnx_runtimes_to_take(own_client: None, count: int) -> None:
    expected = outcome(ort.InferenceSession, product(), threads(count))
    assert_same_outcome(outcome(opatlas.Session, product(), threads(count), frameworks=[]), expected)


# ---- providers and other arguments -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "is_planned"),
    [
        ({"providers": ["CPUExecutionProvider"]}, True),
        ({"providers": []}, True),
        ({"providers": ["AzureExecutionProvider", "CPUExecutionProvider"]}, True),
        ({"providers": ort.get_available_providers()}, True),
        ({"providers": [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]}, True),
        ({"providers": ["CUDAExecutionProvider"]}, True),
        ({"providers": ["CPUExecutionProvider"], "provider_options": [{}]}, True),
        (
            {"providers": ["CPUExecutionProvider"], "provider_options": [{"arena_extend_strategy": "1"}]},
            False,
        ),
        ({"providers": ["CPUExecutionProvider"], "provider_options": []}, False),
        ({"providers": [("CPUExecutionProvider", {"a": "b"})]}, False),
        ({"providers": ["NoSuchProvider"]}, False),
        ({"providers": "CPUExecutionProvider"}, False),
        ({"providers": [3]}, False),
        ({"enable_fallback": 0}, True),
        ({"disabled_optimizers": []}, True),
        ({"disabled_optimizers": ["MatMulAddFusion"]}, False),
        ({"read_config_from_model": 1}, False),
        ({"not_an_option": 1}, True),
        ({"sess_options": 5}, False),
    ],
)
@pytest.mark.filterwarnings("ignore:Specified provider", "ignore:Duplicate provider")
def test_arguments_mean_what_they_mean_there(make: Any, named: dict[str, Any], is_planned: bool) -> None:
    expected = outcome(ort.InferenceSession, product(), **named)
    assert_same_outcome(outcome(make, product(), **named), expected)
    if not isinstance(expected, type):
        session, theirs = make(product(), **named), ort.InferenceSession(product(), **named)
        assert (not session.refused) is is_planned
        assert session.get_providers() == theirs.get_providers()
        assert session.get_provider_options().keys() == theirs.get_provider_options().keys()


def test_another_processor_is_onnx_runtimes(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):  # ONNX Runtime's: it has none here
        assert "not by CUDAExecutionProvider" in make(product(), providers=both).refused["opatlas"]
    assert "CUDAExecutionProvider runs" in make(product()).refused["opatlas"]
    assert not make(product(), providers=["CPUExecutionProvider"]).refused


def test_other_providers_later_make_it_onnx_runtimes_from_then_on(make: Any) -> None:
    session = make(product())
    session.set_providers(["CPUExecutionProvider"])
    assert not session.refused
    binding = session.io_binding()
    session.set_providers(["CPUExecutionProvider"], [{"use_arena": "1"}])
    assert list(session.refused) == ["opatlas"] and isinstance(session, opatlas.Session)
    assert_same(session.run(None, {"x": X}), [np.maximum(X @ W, 0)])
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert_same(binding.copy_outputs_to_cpu(), [np.maximum(X @ W, 0)])


# ---- single runs and calls ---------------------------------------------------------------------------


def test_a_binding_made_before_goes_on_in_onnx_runtime(make: Any) -> None:
    session = make(product())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    session.set_providers(["CPUExecutionProvider"], [{"use_arena": "1"}])
    binding.bind_output("y", "cuda")  # what no plan takes is asked of ONNX Runtime at once
    binding.clear_binding_outputs()
    binding.bind_output("y")
    assert binding.get_outputs() is not None  # before there was a run
    session.run_with_iobinding(binding)
    assert_same(binding.copy_outputs_to_cpu(), [np.maximum(X @ W, 0)])


def adapter(folder: Path) -> Any:
    made = ort.AdapterFormat()
    made.set_adapter_version(1)
    made.set_model_version(1)
    made.set_parameters({"b": ort.OrtValue.ortvalue_from_numpy(np.full(4, 7, np.float32))})
    made.export_adapter(str(folder / "a.onnx_adapter"))
    loaded = ort.LoraAdapter()
    loaded.Load(str(folder / "a.onnx_adapter"))
    return loaded


def adapted() -> bytes:
    """``y = x + b``, where ``b`` is a constant that a run may be given."""
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in {"x": [3, 4], "b": [4], "y": [3, 4]}.items()}  # fmt: skip
    zero = numpy_helper.from_array(np.zeros(4, np.float32), "b")
    node = helper.make_node("Add", ["x", "b"], ["y"])
    graph = helper.make_graph([node], "g", [ends["x"], ends["b"]], [ends["y"]], [zero])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made.SerializeToString()


def bound_output(session: Any, options: Any) -> np.ndarray:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding, options)
    return binding.copy_outputs_to_cpu()[0]


def test_run_options_are_onnx_runtimes(make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "opatlas")
    session, options = make(adapted()), ort.RunOptions()
    assert_same(session.run(None, {"x": X}), [X])
    lora = adapter(tmp_path)  # the options do not keep it
    options.add_active_adapter(lora)
    for _ in range(2):
        assert_same(session.run(None, {"x": X}, options), [X + 7])
        assert_same(session.run(None, {"x": X}), [X])
    assert len([one for one in caplog.records if "run options" in one.message]) == 1  # told once
    assert session.refused == {"opatlas": "A run is given run options."}
    values = {"x": ort.OrtValue.ortvalue_from_numpy(X)}
    found, expected = (
        [one.numpy() for one in each.run_with_ort_values(None, values, options)]
        for each in (session, ort.InferenceSession(adapted()))
    )
    assert_same(found, expected)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding, options)
    assert_same(binding.copy_outputs_to_cpu(), [bound_output(ort.InferenceSession(adapted()), options)])
    session.run_with_iobinding(binding)
    assert_same(binding.copy_outputs_to_cpu(), [X])
    ended = ort.RunOptions()
    ended.terminate = True
    with pytest.raises(Exception, match="terminate flag"):
        session.run(None, {"x": X}, ended)


def test_a_model_planned_at_one_size_runs_at_others(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "opatlas")
    for planned in ({"dims": {"batch": 3}}, {"example": {"x": X}}):
        session = make(product("batch"), **planned)
        assert session.plan.model == session.graph.key and not session.refused
        for rows in (3, 5, 0, 3, 1):
            feed = {"x": np.resize(X, (rows, 4))}
            assert_same(session.run(None, feed), [np.maximum(feed["x"] @ W, 0)])
        assert "float32 [5, 4]; the model takes float32 [3, 4]" in session.refused["opatlas"]
        assert len([one for one in caplog.records if "does not take" in one.message]) == 1
        caplog.clear()


def test_what_fails_in_the_plan_is_run_or_refused_by_onnx_runtime(make: Any) -> None:
    ends = [helper.make_tensor_value_info("i", TensorProto.INT64, [1])]
    ends.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4]))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"])],
        "g",
        ends[:1],
        ends[1:],
        [numpy_helper.from_array(W, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session, feed = make(model.SerializeToString()), {"i": np.array([99])}
    with pytest.raises(Exception) as expected:
        ort.InferenceSession(model.SerializeToString()).run(None, feed)
    with pytest.raises(expected.type, match="out of data bounds"):
        session.run(None, feed)


def test_calls_beyond_a_plan_are_onnx_runtimes(tmp_path: Path) -> None:
    client = Client(offline=True, cache=tmp_path, setting=Setting(threads=2))  # run_async needs one beside
    session = opatlas.Session(product(), client=client, frameworks=[])
    for name in dir(ort.InferenceSession):
        assert name.startswith("_") or callable(getattr(session, name))
    assert not session.refused  # nothing of it was called
    assert session.get_tuning_results() == [] and session.end_profiling() == ""
    assert session.get_profiling_start_time_ns() == 0
    assert "get_tuning_results" in session.refused["opatlas"]
    value = session.create_ortvalue_from_shape_and_type([3, 4], np.float32, "cpu")
    assert value.shape() == [3, 4]
    binding = ort.IOBinding(session)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert_same(binding.copy_outputs_to_cpu(), [np.maximum(X @ W, 0)])
    done: Queue[list[np.ndarray]] = Queue()
    session.run_async(None, {"x": X}, lambda made, *_: done.put(made), None)
    assert_same(done.get(timeout=60), [np.maximum(X @ W, 0)])
    with pytest.raises(AttributeError, match="no_such_method"):
        session.no_such_method  # noqa: B018


# ---- bindings ----------------------------------------------------------------------------------------


def test_a_binding_of_other_sizes_is_onnx_runtimes_and_back(make: Any) -> None:
    session = make(product("batch"), dims={"batch": 3})
    binding = session.io_binding()
    for rows in (3, 5, 0, 3):
        given = np.resize(X, (rows, 4))
        binding.bind_cpu_input("x", given)
        binding.clear_binding_outputs()
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        expected = [np.maximum(given @ W, 0)]
        assert_same(binding.copy_outputs_to_cpu(), expected)
        assert_same([one.numpy() for one in binding.get_outputs()], expected)
        assert len(binding.get_outputs_as_ortvaluevector()) == 1


def bind_another_input(binding: Any) -> None:
    binding.bind_cpu_input("q", X)


def bind_a_list(binding: Any) -> None:
    binding.bind_cpu_input("x", X.tolist())


def bind_another_output(binding: Any) -> None:
    binding.bind_cpu_input("x", X)
    binding.bind_output("q")


def bind_no_output(binding: Any) -> None:
    binding.bind_cpu_input("x", X)


def bind_no_input(binding: Any) -> None:
    binding.bind_output("y")


def bind_another_type(binding: Any) -> None:
    binding.bind_cpu_input("x", X.astype(np.float64))
    binding.bind_output("y")


def bind_half_a_buffer(binding: Any) -> None:
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, None, None, X.ctypes.data)


@pytest.mark.parametrize(
    "bind",
    [
        bind_another_input, bind_a_list, bind_another_output, bind_no_output, bind_no_input,
        bind_another_type, bind_half_a_buffer,
    ],
)  # fmt: skip
def test_a_binding_is_refused_as_onnx_runtime_refuses_it(make: Any, bind: Callable[[Any], None]) -> None:
    def run(session: Any) -> None:
        binding = session.io_binding()
        bind(binding)
        session.run_with_iobinding(binding)

    with pytest.raises(Exception) as expected:
        run(ort.InferenceSession(product()))
    with pytest.raises(expected.type) as found:
        run(make(product()))
    assert str(found.value)[:30] == str(expected.value)[:30]


# ---- models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [b"", b"junk", b"junk" * 1000, product()[:60], product(external=True)])
def test_what_onnx_runtime_cannot_read_it_refuses_itself(make: Any, model: bytes) -> None:
    expected = outcome(ort.InferenceSession, model)
    assert isinstance(expected, type) and outcome(make, model) is expected


def test_a_file_is_refused_as_there_too(make: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "weights.onnx").write_bytes(product(external=True))
    for path in (tmp_path / "none.onnx", tmp_path / "folder", tmp_path / "weights.onnx", 5, None):
        expected = outcome(ort.InferenceSession, path)
        assert isinstance(expected, type) and outcome(make, path) is expected


def test_a_model_in_onnx_runtimes_own_format(make: Any, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    ort.InferenceSession(product(), options)
    session = make(tmp_path / "model.ort")
    assert list(session.refused) == ["opatlas"]
    assert_same(session.run(None, {"x": X}), [np.maximum(X @ W, 0)])


def test_a_plain_session_says_what_it_is(make: Any) -> None:
    session = make(product("batch"))
    assert [step.by.said for step in session.plan.steps] == ["onnxruntime"] and session.standings == ()
    assert session.threads == 1 and session.known == 0 and session.peak_bytes == 0
    assert session.plan_number is None and not session.plan.kernels
    assert session.get_inputs()[0].shape == ["batch", 4]
    [row] = session.breakdown({"x": X})
    assert row.by == "ONNX Runtime, the whole model" and row.us > 0
    assert [box.by for box in session.timeline({"x": X}).boxes] == [row.by]
    with pytest.raises(InvalidModel, match="dimensions batch are symbolic"):
        session.example()
    engines = opatlas.Engines(1)
    for call in (
        lambda: session.share(engines),
        lambda: session.report_timeline({"x": X}),
        lambda: session.run(None, {"x": X}, deadline_s=1.0),
    ):
        with pytest.raises(CallerError, match="ONNX Runtime runs the model by itself"):
            call()
    engines.close()
    with session:
        session.share(None)
    with pytest.raises(CallerError, match="was closed"):
        session.run(None, {"x": X})
    options = ort.SessionOptions()
    options.enable_mem_pattern = False
    assert set(make(product(), options).example()) == {"x"}


def test_a_class_of_ones_own_stays_one(make: Any, tmp_path: Path) -> None:
    class Mine(opatlas.Session):
        def __init__(self, *given: Any, **named: Any) -> None:
            self.name = "mine"
            super().__init__(*given, **named)

        def run(self, *given: Any, **named: Any) -> Any:
            return [2 * one for one in super().run(*given, **named)]

    session = Mine(product("batch"))
    assert isinstance(session, Mine) and session.name == "mine"
    assert_same(session.run(None, {"x": X}), [2 * np.maximum(X @ W, 0)])


# ---- our own -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["read_model", "Client", "own_fusions", "conf", "KeptChoice", "Executor"])
def test_nothing_of_ours_that_fails_stops_a_model(
    own_client: None, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("It is broken.")

    monkeypatch.setattr(opatlas.session.session, where, fails)
    with opatlas.Session(product(), threads(1)) as session:
        assert session.refused == {"opatlas": "It is broken."}
        assert_same(session.run(None, {"x": X}), [np.maximum(X @ W, 0)])


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"dims": {"batch": -1}}, "'batch' is given as -1"),
        ({"dims": {"batch": "3"}}, "'batch' is given as '3'"),
        ({"threads": 0}, "at least 1 thread, not 0"),
        ({"threads": 2}, "has 1 threads; 2 are asked for"),
        ({"threads": 2, "sess_options": threads(1)}, "has 1 threads; 2 are asked for"),
        ({"plan": {"steps": []}}, "plan"),
    ],
)
def test_what_is_wrong_in_arguments_of_our_own_is_said(
    make: Any, named: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CallerError, match=sentence):
        make(product(), **named)


def test_a_plan_that_fails_later_stops_no_model(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make(product())
    session._executor.direct = None

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("It is broken.")

    monkeypatch.setattr(session._executor, "run", fails)
    assert_same(session.run(None, {"x": X}), [np.maximum(X @ W, 0)])
    assert session.refused == {"opatlas": "It is broken."}
