"""Kernels inside one session of ONNX Runtime: the values are its own, and what fails gives way to it."""

from __future__ import annotations

import ctypes
import gc
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from opatlas.errors import LoadError
from opatlas.graph import weights
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Value
from opatlas.inside import handed
from opatlas.inside.handed import DOMAIN, HandedKernels, inside_library
from opatlas.inside.over_inputs import may_write_over
from opatlas.load.c_abi import CKernel
from opatlas.load.kernel import KernelFailed
from opatlas.load.onnxruntime_recipe import quiet_options
from opatlas.plan.checking import check_plan
from opatlas.plan.executor import Executor
from opatlas.plan.plan import ByBodies, ByFramework, InvalidPlan, ModelPlan
from opatlas.plan.said import said_of
from tests import by_day
from tests.opatlas.inside.made import FEED, SIZE, CSources, X, Y, additions, inside, running
from tests.opatlas.load.kernels import ADD, FAILS_LATER, HEADER, PREPARED_ADD, REFUSES_WEIGHTS, add_operator
from tests.opatlas.plan.c_kernels import CKernels
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.making import PLACE, assert_same, wanted
from tests.tuning.graph.making import model


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Whoever closes what has kernels inside lets go of all of them."""
    yield
    gc.collect()  # tracebacks of errors have sessions, too
    HandedKernels().close()
    assert not handed._still_used


@pytest.mark.parametrize("seed", by_day.first(3, [*range(13), 14, 15]))  # 13 has none for these kernels
def test_a_random_model_gives_what_onnx_runtime_gives(seed: int) -> None:
    made = RandomModel(seed)
    data = made.build()
    graph = ModelGraph(data)
    kernels = CKernels(graph)
    executor = Executor(graph, inside(graph, kernels.candidates), kernels.load, threads=1)
    for feed in (made.feed(1), made.feed(2)):
        assert_same(executor.run(feed), wanted(data, feed))
        assert_same(straight(executor, feed), wanted(data, feed))
    assert executor.artifacts and not executor.fallen_back
    executor.close()


def straight(executor: Executor, feed: Mapping[str, np.ndarray]) -> list[Any]:
    """A run that goes straight to the session."""
    direct = executor.direct
    assert direct is not None
    found = direct.run(None, feed)
    assert found is not None
    return found


def test_steps_are_timed_where_they_stand() -> None:
    executor = running(additions(), ADD)
    assert said_of(executor.plan) == "2 kernels inside ONNX Runtime"
    taken = executor.profile(FEED)
    assert [one.step for one in taken] == list(executor.plan.steps) and all(one.us > 0 for one in taken)
    assert next(box.by for box in executor.timeline(FEED).boxes) == "kernel of 0"
    executor.close()


def test_a_kernel_that_fails_in_a_profile_gives_way_and_the_others_are_timed() -> None:
    told: list[str] = []
    executor = running(
        additions(), ADD, others={2: FAILS_LATER.replace(">= 3", ">= 5")},
        failed=lambda step, error: told.append(str(error)),
    )  # fmt: skip
    times = executor.node_times(FEED)
    assert set(times) == {0, 1, 2, 3} and told == ["the kernel failed: the third call is one too many"]
    assert [by.artifact for by in executor.kernels] == [f"{0:064x}"]
    executor.close()


def test_a_profile_over_inputs_that_do_not_fit_lets_go_of_its_kernels() -> None:
    executor, closed = running(additions(), ADD), list[CKernel]()
    inner, close = executor._inside, CKernel.close
    assert inner is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CKernel, "close", lambda kernel: (closed.append(kernel), close(kernel)))
        with pytest.raises(KernelFailed, match="invalid dimensions"):
            inner.profile({"x": X[:10], "y": Y})
        gc.collect()  # the error's traceback has the session
        HandedKernels().close()
    assert len(closed) == 2
    assert_same(executor.run(FEED), wanted(additions(), FEED))
    executor.close()


def test_a_session_that_is_dropped_lets_go_of_its_kernels_as_one_that_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed, close = list[CKernel](), CKernel.close
    monkeypatch.setattr(CKernel, "close", lambda kernel: (closed.append(kernel), close(kernel)))
    running(additions(), ADD).run(FEED)
    gc.collect()
    HandedKernels().close()
    assert len(closed) == 2


def test_loops_run_on_the_sessions_threads_and_unaligned_inputs_are_copied() -> None:
    executor = running(additions(3), ADD, threads=2)  # the kernel refuses what is not aligned
    feed = {"x": _unaligned(X), "y": _unaligned(Y)}
    for _ in range(2):
        assert_same(executor.run(feed), wanted(additions(3), FEED))
    assert len(executor.artifacts) == 3
    executor.close()


def _unaligned(array: np.ndarray) -> np.ndarray:
    """Beginning four bytes after a multiple of 64."""
    raw = np.empty(array.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + 4
    found = raw[start : start + array.nbytes].view(array.dtype)
    found[...] = array
    return found


PREPARED_SUB = PREPARED_ADD.replace("z[i] = x[i] + packed", "z[i] = x[i] - packed")


def test_weights_are_prepared_once_for_each_node() -> None:
    data = additions(2, weight=True)
    executor = running(data, PREPARED_SUB)
    for x in (X, -X):
        assert_same(executor.run({"x": x}), wanted(data, {"x": x}))
    assert len(executor.artifacts) == 2
    executor.close()


def test_weights_that_protobuf_cannot_write_are_handed_over_beside_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = additions(2, weight=True)
    monkeypatch.setattr(weights, "MOST_SERIALISED", 500)
    executor = running(data, PREPARED_SUB)
    assert_same(executor.run({"x": X}), wanted(data, {"x": X}))
    assert len(executor.artifacts) == 2
    executor.close()


def test_weights_for_which_memory_does_not_suffice_are_not_loaded_beside_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("opatlas.plan.inside.lacking", lambda wanted: f"{wanted} bytes are too many")
    with pytest.raises(LoadError, match=f"{4 * Y.nbytes} bytes are too many"):
        running(additions(2, weight=True), PREPARED_SUB)


def looping() -> bytes:
    """A subtraction of a constant, of the model around it, in each of five iterations."""
    of = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Sub", ["c", "y"], ["d"]), helper.make_node("Tanh", ["d"], ["e"])],
        "body",
        [of("turn", 7, []), of("go", 9, []), of("c", 1, [SIZE])],
        [helper.make_empty_tensor_value_info("go"), of("e", 1, [SIZE])],
    )
    nodes = [helper.make_node("Loop", ["five", "", "x"], ["z"], body=body)]
    made = model(nodes, {"x": (SIZE,)}, ["z"], {"five": np.array(5), "y": Y})
    made.ir_version, made.opset_import[0].version = 8, 17
    return made.SerializeToString()


def test_kernels_in_bodies_have_their_weights_there() -> None:
    executor = running(looping(), PREPARED_SUB)
    for x in (X, -X):
        assert_same(executor.run({"x": x}), wanted(looping(), {"x": x}))
    assert len(executor.artifacts) == 1 and isinstance(executor.plan.steps[0].by, ByBodies)
    executor.close()


def test_a_kernel_that_fails_gives_way_in_that_very_run_and_the_others_stay() -> None:
    told: list[Any] = []
    data = additions()
    executor = running(
        data,
        ADD,
        others={2: FAILS_LATER.replace(">= 3", ">= 5")},
        failed=lambda step, error: told.append((step.nodes, str(error))),
    )
    expected = wanted(data, FEED)
    assert_same(executor.run(FEED), expected)
    direct = executor.direct
    assert direct is not None
    for _ in range(3):  # the third fails, in a run that goes straight to the session (two calls were tries)
        if (found := direct.run(None, FEED)) is None:
            found = executor.run(FEED)
        assert_same(found, expected)
    assert told == [((2,), "the kernel failed: the third call is one too many")]
    assert executor.artifacts == {f"{0:064x}"} and not executor.fallen_back
    assert_same(straight(executor, FEED), expected)  # of the session without it
    executor.close()


def test_a_kernel_that_refuses_its_weights_gives_way_when_the_session_is_made() -> None:
    data = additions(2, weight=True)
    executor = running(data, PREPARED_SUB, others={0: REFUSES_WEIGHTS})
    assert executor.artifacts == {f"{2:064x}"}
    assert_same(executor.run({"x": X}), wanted(data, {"x": X}))
    executor.close()


def test_a_kernel_that_was_revoked_is_out_of_the_next_run() -> None:
    gone: set[str] = set()
    executor = running(additions(), ADD, revoked=lambda: gone)
    expected = wanted(additions(), FEED)
    assert_same(executor.run(FEED), expected)
    direct = executor.direct
    assert direct is not None and direct.run(None, FEED) is not None
    gone.add(f"{2:064x}")
    assert direct.run(None, FEED) is None
    assert_same(executor.run(FEED), expected)
    assert executor.artifacts == {f"{0:064x}"} and direct.run(None, FEED) is not None
    executor.close()


def test_where_memory_does_not_suffice_without_what_was_revoked_the_whole_model_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone: set[str] = set()
    executor = running(additions(), ADD, revoked=lambda: gone)
    expected = wanted(additions(), FEED)
    assert_same(executor.run(FEED), expected)
    gone.add(f"{2:064x}")
    monkeypatch.setattr("opatlas.plan.inside.lacking", lambda wanted: "nothing is left")
    for _ in range(2):
        assert_same(executor.run(FEED), expected)
    assert executor.fallen_back == "The model failed: nothing is left" and not executor.artifacts
    executor.close()


ONE_AT_A_TIME = (
    HEADER
    + """
/* Fails where another call is under way in this library. */
#include <stdatomic.h>
#include <unistd.h>
static _Atomic int busy;
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  if (atomic_fetch_add(&busy, 1)) return 5;
  usleep(2000);
  const float *x = t[0].data, *y = t[1].data;
  for (int64_t i = 0; i < t[0].shape[0]; i++) ((float*)t[2].data)[i] = x[i] + y[i];
  atomic_fetch_sub(&busy, 1);
  return 0;
}
"""
)


def test_runs_at_once_use_a_kernel_one_at_a_time() -> None:
    executor = running(additions(2), ONE_AT_A_TIME)
    expected = wanted(additions(2), FEED)
    executor.run(FEED)
    direct = executor.direct
    assert direct is not None
    with ThreadPoolExecutor(4) as pool:
        for made in pool.map(lambda _: direct.run(None, FEED), range(12)):
            assert made is not None
            assert_same(made, expected)
    assert len(executor.artifacts) == 2
    executor.close()


NESTED = (
    HEADER
    + """
/* A loop within a task of a loop, whose tasks have to run where that does. */
#include <pthread.h>
#include <unistd.h>
typedef struct { const opatlas_tensor* t; const opatlas_threads* threads; pthread_t at; } job;
static int inner(int32_t task, int32_t tasks, void* arg) {
  const opatlas_tensor* t = ((job*)arg)->t;
  int64_t n = t[0].shape[0];
  const float *x = t[0].data, *y = t[1].data;
  for (int64_t i = n * task / tasks; i < n * (task + 1) / tasks; i++) ((float*)t[2].data)[i] = x[i] + y[i];
  usleep(500);
  return pthread_equal(((job*)arg)->at, pthread_self()) ? 0 : 9;
}
static int outer(int32_t task, int32_t tasks, void* arg) {
  job* j = arg;
  if (task) return 0;
  j->at = pthread_self();
  return j->threads->parallel_for(j->threads->pool, inner, j, 8);
}
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  job j = {t, threads};
  return threads->parallel_for(threads->pool, outer, &j, 4);
}
"""
)
FAILS_IN_A_TASK = NESTED.replace("if (task) return 0", "if (task) return task == 3 ? 42 : 0")


def test_a_loop_within_a_loop_runs_and_a_task_that_fails_fails_the_kernel() -> None:
    data, told = additions(), list[str]()
    executor = running(
        data, NESTED, 2, others={2: FAILS_IN_A_TASK}, failed=lambda step, error: told.append(str(error))
    )
    assert_same(executor.run(FEED), wanted(data, FEED))
    assert told == ["the kernel failed: error code 42"] and len(executor.artifacts) == 1
    executor.close()


# ---- in place --------------------------------------------------------------------------------------

WHERE_IT_READS = (
    HEADER
    + """
/* Fails unless the output lies where the first input does, or where either is the model's own. */
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float *x = t[0].data, *y = t[1].data;
  float* z = t[2].data;
  for (int64_t i = 0; i < t[0].shape[0]; i++) z[i] = x[i] + y[i];
  return z == x ? 0 : 77;
}
"""
)
TWICE = (
    HEADER
    + """
/* Computes its first half twice: right, unless it writes where it reads. */
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float *x = t[0].data, *y = t[1].data;
  int64_t size = t[0].shape[0];
  for (int64_t i = 0; i < size / 2; i++) ((float*)t[2].data)[i] = x[i] + y[i];
  for (int64_t i = 0; i < size; i++) ((float*)t[2].data)[i] = x[i] + y[i];
  return 0;
}
"""
)


NEGATIVE_TWICE = TWICE.replace("x[i] + y[i]", "x[i] < 0 ? x[i] / 2 : x[i]")


@pytest.mark.parametrize(("source", "expected"), [(ADD, True), (TWICE, False), (NEGATIVE_TWICE, False)])
def test_whether_a_kernel_may_write_where_it_reads_is_tried(source: str, expected: bool) -> None:
    graph = ModelGraph(additions(1))
    kernels = CSources(graph, source)
    kernel = kernels.load(kernels.candidates[0].by)
    assert may_write_over(kernel, {}) is expected
    kernel.close()


def test_onnx_runtime_lets_an_element_wise_kernel_write_where_it_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("opatlas.plan.inside.may_write_over", lambda kernel, constants: True)
    graph, told = ModelGraph(additions(2)), list[str]()
    kernels = CSources(graph, WHERE_IT_READS)
    only = {2: kernels.candidates[2]}  # what it reads is no input of the model
    executor = Executor(
        graph,
        inside(graph, only),
        kernels.load,
        threads=1,
        failed=lambda step, error: told.append(str(error)),
    )
    assert_same(executor.run(FEED), wanted(additions(2), FEED))
    assert not told
    executor.close()


# ---- what others do --------------------------------------------------------------------------------


def test_a_model_that_names_our_domain_is_no_model_for_kernels() -> None:
    made = onnx.load_from_string(additions(1))
    made.graph.node.append(helper.make_node(f"{0:064x}.0", ["x"], ["z"], domain=DOMAIN))
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    made.graph.output.append(helper.make_empty_tensor_value_info("z"))
    graph = ModelGraph(made.SerializeToString())
    kernels = CSources(graph, ADD)
    plan = inside(graph, kernels.candidates)
    with pytest.raises(LoadError, match=r"itself has nodes of the domain ai\.opatlas"):
        Executor(graph, plan, kernels.load, threads=1)


def test_a_session_that_nobody_handed_kernels_to_has_none() -> None:
    with pytest.raises(Exception, match="no kernels are handed over for this session"):
        quiet_options(1).register_custom_ops_library(inside_library().path)


def _registered(version: bytes, code: int = 1) -> tuple[Any, list[bytes]]:
    """What an ONNX Runtime of this version is answered whose statuses all have this code, and the texts of
    those that it made."""
    texts: list[bytes] = []
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(
        lambda code, text: texts.append(text) or 1
    )
    told = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda status: code)
    said, name = ctypes.create_string_buffer(DOMAIN.encode()), ctypes.create_string_buffer(version)
    message = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda status: ctypes.addressof(said))
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda status: None)
    table = (ctypes.c_void_p * 400)()
    for slot, function in ((0, create), (1, told), (2, message), (93, release)):
        table[slot] = ctypes.cast(function, ctypes.c_void_p).value
    get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda version: ctypes.addressof(table))
    say = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(name))
    base = (ctypes.c_void_p * 2)(*(ctypes.cast(one, ctypes.c_void_p).value for one in (get, say)))
    register = inside_library().handle.RegisterCustomOps
    register.restype = ctypes.c_void_p
    return register(None, ctypes.byref(base)), texts


def test_an_onnx_runtime_that_is_too_old_or_unknown_takes_no_kernels() -> None:
    assert _registered(b"1.16.3") == (1, [b"kernels run inside ONNX Runtime from 1.17 on"])
    assert _registered(b"2.0.0")[0] == 1
    assert _registered(b"1.31.1")[1][-1] == b"no kernels are handed over for this session"
    assert _registered(b"1.31.1", code=7) == (None, [DOMAIN.encode()])  # another table: nothing is called


def test_a_shape_that_the_model_did_not_say_is_refused_before_the_kernel_sees_it() -> None:
    kernels, options = HandedKernels(), quiet_options(1)
    graph = ModelGraph(additions(1))
    sources = CSources(graph, ADD)
    kernel = sources.load(sources.candidates[0].by)
    kernels.add("add", add_operator(SIZE), kernel, kernel.code(), may_write_over=False)
    kernels.register(options)
    ends = [helper.make_tensor_value_info(name, 1, ["n"]) for name in "xyz"]
    node = helper.make_node("add", ["x", "y"], ["z"], domain=DOMAIN)
    made = helper.make_model(
        helper.make_graph([node], "g", ends[:2], ends[2:]), opset_imports=[helper.make_opsetid(DOMAIN, 1)]
    )
    made.ir_version = 10
    session = ort.InferenceSession(made.SerializeToString(), options)
    [z] = session.run(None, FEED)
    assert (z == X + Y).all()
    with pytest.raises(Exception, match="another shape than the model says"):
        session.run(None, {name: value[:10] for name, value in FEED.items()})
    assert not kernels.has_failed
    for _ in range(2):
        kernels.close()
        assert kernels in handed._still_used  # the session may still run
    assert (session.run(None, FEED)[0] == z).all()
    del session
    HandedKernels().close()
    assert kernels not in handed._still_used


def test_values_that_are_not_dense_are_not_onnx_runtimes() -> None:
    kernels, operator = HandedKernels(), add_operator(SIZE)
    graph = ModelGraph(additions(1))
    sources = CSources(graph, ADD)
    kernel = sources.load(sources.candidates[0].by)
    strided = replace(operator, inputs=(Value("float32", (SIZE,), strides=(2,)), operator.inputs[1]))
    with pytest.raises(LoadError, match="not dense"):
        kernels.add("add", strided, kernel, kernel.code(), may_write_over=False)
    kernels.close()
    kernel.close()


def test_a_plan_that_is_inside_leaves_nothing_to_others() -> None:
    graph = ModelGraph(additions())
    plan = inside(graph, CSources(graph, ADD).candidates)
    steps = tuple(
        replace(step, by=ByFramework("openvino")) if isinstance(step.by, ByFramework) else step
        for step in plan.steps
    )
    with pytest.raises(InvalidPlan, match="runs inside onnxruntime, and says"):
        check_plan(replace(plan, steps=steps), graph, *PLACE)
    with pytest.raises(InvalidPlan, match=re.escape("'inside' is said of the model's plan")):
        ModelPlan.from_json({**plan.to_json(), "inside": "openvino"})


def test_sessions_are_made_in_a_forked_child_too() -> None:
    executor = running(additions(), ADD)
    expected = wanted(additions(), FEED)
    if (child := os.fork()) == 0:
        try:
            found = running(additions(), ADD).run(FEED)
            os._exit(0 if all(map(np.allclose, found, expected)) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    executor.close()
