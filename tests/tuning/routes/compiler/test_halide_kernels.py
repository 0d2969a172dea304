"""What every autoscheduler makes of each family of operators computes what PyTorch computes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, parse_operator
from opatlas.load import load
from tests import by_day
from tests.tuning.routes.compiler.tvm_cases import (
    TARGET,
    const,
    data,
    lying,
    one,
    random_inputs,
    run,
    typed,
)
from tuning.measure.judging.check import Reference, compare
from tuning.measure.judging.reference import runner
from tuning.measure.outcome import Status
from tuning.routes.base import Budget, BuiltArtifact, Candidate, RouteError
from tuning.routes.compiler.halide import HalideRoute

ROUTE = HalideRoute()
SETTING = Setting(threads=2)

pytestmark = pytest.mark.skipif(not ROUTE.available(TARGET), reason="Halide is not installed as pinned")

CONV = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}


def graph(inputs: list[dict[str, Any]], *nodes: dict[str, Any]) -> Operator:
    return parse_operator({"inputs": inputs, "nodes": list(nodes), "outputs": nodes[-1]["outputs"]})


def conv_relu() -> Operator:
    return graph(
        [typed("float32", 1, 8, 10, 10), const(16, 8, 3, 3), const(16)],
        {"op": "Conv", "inputs": [0, 1, 2], "attrs": CONV, "outputs": [3]},
        {"op": "Relu", "inputs": [3], "outputs": [4]},
    )


def conv_channels_last() -> Operator:
    """As plans with layouts have it: dense NHWC in and out."""
    return graph(
        [typed("float32", 1, 10, 10, 8), const(16, 8, 3, 3), const(16)],
        {"op": "Transpose", "inputs": [0], "attrs": {"perm": [0, 3, 1, 2]}, "outputs": [3]},
        {"op": "Conv", "inputs": [3, 1, 2], "attrs": CONV, "outputs": [4]},
        {"op": "Relu", "inputs": [4], "outputs": [5]},
        {"op": "Transpose", "inputs": [5], "attrs": {"perm": [0, 2, 3, 1]}, "outputs": [6]},
    )


def depthwise_channels_last() -> Operator:
    """Fewer channels than places in a row: a tile that took the one for the other would reach beyond."""
    return graph(
        [typed("float32", 1, 30, 30, 8), const(8, 1, 3, 3)],
        {"op": "Transpose", "inputs": [0], "attrs": {"perm": [0, 3, 1, 2]}, "outputs": [2]},
        {"op": "Conv", "inputs": [2, 1], "attrs": {**CONV, "group": 8}, "outputs": [3]},
        {"op": "Transpose", "inputs": [3], "attrs": {"perm": [0, 2, 3, 1]}, "outputs": [4]},
    )


def matmul_silu() -> Operator:
    return graph(
        [typed("float32", 8, 32), const(32, 48)],
        {"op": "MatMul", "inputs": [0, 1], "outputs": [2]},
        {"op": "Sigmoid", "inputs": [2], "outputs": [3]},
        {"op": "Mul", "inputs": [2, 3], "outputs": [4]},
    )


def training_norm() -> Operator:
    return graph(
        [typed("float32", 4, 6, 5, 3), *(typed("float32", 6) for _ in range(4))],
        {
            "op": "BatchNormalization",
            "inputs": [0, 1, 2, 3, 4],
            "attrs": {"training_mode": 1},
            "outputs": [5, 6, 7],
        },
    )


FAMILIES: dict[str, Callable[[], Operator]] = {
    "conv": lambda: one("Conv", (1, 16, 14, 14), const(32, 16, 3, 3), const(32), **CONV),
    "conv grouped, odd": lambda: one("Conv", (2, 12, 9, 11), const(8, 6, 3, 3), group=2, strides=[2, 1]),
    "conv depthwise": lambda: one("Conv", (1, 24, 16, 16), const(24, 1, 3, 3), group=24, **CONV),
    "conv dilated, 1d": lambda: one("Conv", (2, 8, 33), const(16, 8, 5), const(16), dilations=[2]),
    "conv 1x1": lambda: one("Conv", (1, 24, 7, 7), const(48, 24, 1, 1)),
    "conv transposed": lambda: one(
        "ConvTranspose", (1, 6, 5, 5), const(6, 5, 4, 4), const(5), strides=[2, 2], pads=[1] * 4
    ),
    "matmul batched": lambda: one("MatMul", (2, 3, 24, 16), (2, 3, 16, 40)),
    "matmul of columns": lambda: one("MatMul", (16, 64), lying((64, 32), 1, 64)),
    "gemm, packed": lambda: one("Gemm", (5, 33), const(40, 33), const(40), transB=1, alpha=0.5, beta=2.0),
    "gemm, panels": lambda: one("Gemm", (9, 33), const(256, 33), const(1, 256), transB=1),
    "gemm, both turned": lambda: one("Gemm", (65, 9), (17, 65), transA=1, transB=1),
    "matmul, vector": lambda: one("MatMul", (3, 16, 70), (70,)),
    "softmax": lambda: one("Softmax", (6, 133), axis=-1),
    "log-softmax, inner axis": lambda: one("LogSoftmax", (3, 20, 17), axis=1),
    "layer norm": lambda: one("LayerNormalization", (2, 9, 96), const(96), const(96), axis=-1),
    "rms norm": lambda: one("RMSNormalization", (4, 9, 100), const(100), axis=-1),
    "group norm": lambda: one("GroupNormalization", (2, 8, 5, 6), const(8), const(8), num_groups=4),
    "batch norm": lambda: one("BatchNormalization", (1, 7, 5, 3), *[const(7)] * 4),
    "batch norm, training": training_norm,
    "gelu": lambda: one("Gelu", (5, 77)),
    "tanh": lambda: one("Tanh", (3, 43)),
    "add": lambda: one("Add", (4, 1, 6), (5, 1)),
    "relu of columns": lambda: one("Relu", lying((4, 6), 1, 4)),
    "where": lambda: one("Where", typed("bool", 1, 4), (3, 4), (3, 1)),
    "reduce all": lambda: one("ReduceSum", (300, 300), keepdims=0),
    "reduce max": lambda: one("ReduceMax", (30, 100), data(0)),
    "max pool": lambda: one("MaxPool", (1, 6, 15, 15), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "average pool": lambda: one("AveragePool", (1, 6, 14, 14), kernel_shape=[3, 3], pads=[1] * 4),
    "concat": lambda: one("Concat", (1, 3, 5), (1, 4, 5), axis=1),
    "split": lambda: one("Split", (2, 12), data(3, 4, 5), axis=1),
    "transpose": lambda: one("Transpose", (2, 3, 4, 5), perm=[0, 2, 3, 1]),
    "pad": lambda: one("Pad", (2, 5, 9), data(0, 1, 2, 0, 0, 3)),
    "conv and relu": conv_relu,
    "conv, channels last": conv_channels_last,
    "depthwise, channels last": depthwise_channels_last,
    "matmul and silu": matmul_silu,
    "double": lambda: one("MatMul", typed("float64", 8, 9), typed("float64", 9, 8)),
    "half conv": lambda: one(
        "Conv",
        typed("float16", 1, 8, 9, 10),
        *(const(*n, dtype="float16") for n in ((16, 8, 3, 3), (16,))),
        **CONV,
    ),
    "half matmul": lambda: one("MatMul", typed("float16", 13, 17), lying((17, 19), 1, 17, dtype="float16")),
    "half softmax": lambda: one("Softmax", typed("float16", 2, 3, 128), axis=-1),
    "half max pool": lambda: one(
        "MaxPool", typed("float16", 1, 6, 15, 15), kernel_shape=[3, 3], pads=[1] * 4
    ),
    "bfloat16 layer norm": lambda: one(
        "LayerNormalization", typed("bfloat16", 6, 96), const(96, dtype="bfloat16"), axis=-1
    ),
    "half transpose": lambda: one("Transpose", typed("float16", 4, 5, 3), perm=[2, 0, 1]),
    "resize": lambda: one(
        "Resize", (1, 2, 4, 5), None, None, data(1, 2, 7, 8), mode="cubic", exclude_outside=1
    ),
    "resize, twice as large": lambda: one(
        "Resize", (1, 2, 4, 5), None, None, data(1, 2, 8, 10), mode="nearest"
    ),
    "gather elements": lambda: one("GatherElements", (11, 6), typed("int64", 4, 6), axis=0),
    "integers": lambda: one("Div", typed("int32", 40), {**typed("int32", 1), "data": [3], "const": True}),
}

ALL_BY_DAY = ("gemm, panels", "softmax", "add")
"""By day every scheduler's candidates of these, and the first of:"""
ONE_BY_DAY = (
    "conv", "conv transposed", "matmul batched", "layer norm", "batch norm, training", "reduce all",
    "max pool", "concat", "transpose", "conv, channels last", "half softmax", "bfloat16 layer norm", "resize",
    "gather elements", "integers",
)  # fmt: skip
"""One for each file that lowers operators, and for what they share: graphs, layouts, narrow types."""

ONE_BY_ONE = "Abs Round Sign Softplus HardSwish Elu Selu Mish Exp Sin Atan IsInf Shrink Erf Sigmoid"


def candidates(operator: Operator) -> list[Candidate]:
    return list(ROUTE.candidates(operator, TARGET, SETTING, Budget(seconds=5)))


def assert_right(artifact: BuiltArtifact, operator: Operator, inputs: dict[int, np.ndarray]) -> None:
    """By the laboratory's own measure."""
    constants = {number: array for number, array in inputs.items() if number in operator.constant_inputs}
    moving = {number: array for number, array in inputs.items() if number not in constants}
    wanted = [Reference(*pair) for pair in runner("torch64", operator, SETTING, constants)(moving)]
    verdict = compare(run(artifact, operator, inputs), wanted)
    assert verdict.status is Status.OK, verdict.detail


@pytest.mark.parametrize("name", by_day.only(ALL_BY_DAY, FAMILIES))
def test_every_candidate_computes_what_pytorch_computes(name: str, tmp_path: Path) -> None:
    wanted = {"Mullapudi2016", "Li2018"} | ({"Adams2019"} if "resize" not in name else set())
    assert right_ones(name, tmp_path) >= wanted


@pytest.mark.parametrize("name", ONE_BY_DAY)
def test_the_first_candidate_computes_what_pytorch_computes(name: str, tmp_path: Path) -> None:
    assert right_ones(name, tmp_path, most=1)


def right_ones(name: str, tmp_path: Path, most: int | None = None) -> set[object]:
    """The schedulers whose candidates, ``most`` of them (all), were built and are right."""
    operator = FAMILIES[name]()
    assert ROUTE.supports(operator, SETTING)
    inputs = random_inputs(operator)
    if name == "batch norm, training":
        inputs[4] = np.abs(inputs[4]) + 0.1
    built = set()
    for number, candidate in enumerate(candidates(operator)[:most]):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            artifact = ROUTE.build(operator, TARGET, SETTING, candidate, folder)
        except RouteError:
            # Ours is for one product; no autoscheduler may fail on any of these.
            assert candidate.parameters["scheduler"] == "own"
            continue
        built.add(candidate.parameters["scheduler"])
        assert_right(artifact, operator, inputs)
        assert {path.name for path in folder.iterdir()} == {"kernel.so"}
    return built


@pytest.mark.parametrize("name", by_day.first(4, ONE_BY_ONE.split()))
def test_elementwise(name: str, tmp_path: Path) -> None:
    operator = one(name, (5, 77))
    artifact = ROUTE.build(operator, TARGET, SETTING, candidates(operator)[-1], tmp_path)
    assert_right(artifact, operator, random_inputs(operator))


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Operator, dict[int, BuiltArtifact]]:
    """A product with packed weights, for one thread and for two."""
    operator = one("Gemm", (64, 96), const(160, 96), const(160), transB=1)
    made = {}
    for threads in (1, 2):
        setting, folder = Setting(threads=threads), tmp_path_factory.mktemp(f"threads{threads}")
        candidate = next(c for c in candidates(operator) if c.parameters["scheduler"] == "Adams2019")
        made[threads] = ROUTE.build(operator, TARGET, setting, candidate, folder)
    return operator, made


def test_the_library_needs_libc_only_and_exports_the_abi_only(
    gemm: tuple[Operator, dict[int, BuiltArtifact]],
) -> None:
    library = gemm[1][2].folder / "kernel.so"
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"^\s*([\w.+-]+)\.so", needed, re.MULTILINE))
    assert names <= {"libc", "libm", "libpthread", "linux-vdso", "ld-linux-x86-64"}
    listed = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    exported = set(re.findall(r" [TDBRV] (\S+)", listed))
    assert exported == {"opatlas_run", "opatlas_prepare", "opatlas_release", "opatlas_error"}
    assert "pthread_create" not in listed


_FRESH = """
import json, sys, threading, os
for name in ("halide", "halide.halide_", "torch", "tvm"):
    sys.modules[name] = None
from pathlib import Path
import numpy as np
from opatlas.load import Manifest, load
folder = Path(sys.argv[1])
kernel = load(Manifest.from_json(json.loads((folder / "manifest.json").read_text())), folder)
arrays = np.load(folder / "arrays.npz")
kernel.prepare({1: arrays["1"], 2: arrays["2"]})
bound = kernel.bind({0: arrays["0"]})
before = len(os.listdir("/proc/self/task"))
for _ in range(20):
    bound()
assert len(os.listdir("/proc/self/task")) <= before + 1, "more threads than the pool's one"
np.save(folder / "out.npy", bound.outputs()[0])
kernel.close()
"""


def test_a_process_without_halide_loads_and_runs_it(gemm: tuple[Operator, dict[int, BuiltArtifact]]) -> None:
    operator, made = gemm
    folder, inputs = made[2].folder, random_inputs(operator)
    (folder / "manifest.json").write_text(json.dumps(made[2].manifest.to_json()))
    np.savez(folder / "arrays.npz", **{str(number): array for number, array in inputs.items()})
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    subprocess.run([sys.executable, "-c", _FRESH, str(folder)], check=True, env=environment, timeout=240)
    assert np.array_equal(np.load(folder / "out.npy"), run(made[2], operator, inputs)[0])


def test_one_and_two_threads_agree(gemm: tuple[Operator, dict[int, BuiltArtifact]]) -> None:
    operator, made = gemm
    inputs = random_inputs(operator)
    for artifact in made.values():
        assert_right(artifact, operator, inputs)


@pytest.mark.parametrize("offset_bytes", [4, 16, 60])
def test_inputs_may_lie_anywhere(gemm: tuple[Operator, dict[int, BuiltArtifact]], offset_bytes: int) -> None:
    operator, made = gemm
    assert_right(made[2], operator, random_inputs(operator, offset_bytes=offset_bytes))


def test_the_manifest_states_what_the_code_needs(gemm: tuple[Operator, dict[int, BuiltArtifact]]) -> None:
    manifest = gemm[1][2].manifest
    assert manifest.kind == "c-abi" and manifest.route == "halide" and not manifest.needs
    assert manifest.alignment == 64
    assert set(manifest.features) <= set(TARGET.features)
    assert ("avx2" in manifest.features) == ("avx2" in TARGET.features)


def test_a_poorer_target_gets_poorer_code(tmp_path: Path) -> None:
    poor = replace(TARGET, features=("avx", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"))
    operator = one("MatMul", (16, 32), const(32, 48))
    artifact = ROUTE.build(operator, poor, SETTING, candidates(operator)[0], tmp_path)
    assert set(artifact.manifest.features) == set(poor.features)
    code = subprocess.run(
        ["objdump", "-d", tmp_path / "kernel.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "%ymm" in code and "%zmm" not in code and "vfmadd" not in code
    assert_right(artifact, operator, random_inputs(operator))


def test_people_can_read_schedule_and_code(gemm: tuple[Operator, dict[int, BuiltArtifact]]) -> None:
    artifact = gemm[1][2]
    assert "Adams2019" in artifact.schedule and ".vectorize(" in artifact.schedule
    assert "produce" in artifact.source and len(artifact.source) < 100_000
    facts = artifact.facts
    assert facts["autoscheduler"] == "Adams2019" and facts["versions"] == {"halide": "21.0.0"}
    assert facts["compile_s"] > 0 and facts["state_bytes"] == 160 * 96 * 4
    assert "no_runtime" in facts["halide_target"]


def test_wrong_shapes_are_refused(gemm: tuple[Operator, dict[int, BuiltArtifact]]) -> None:
    operator, made = gemm
    kernel = load(made[2].manifest, made[2].folder)
    inputs = random_inputs(operator)
    kernel.prepare({1: inputs[1], 2: inputs[2]})
    with pytest.raises(LoadError, match="shape"):
        kernel.bind({0: np.zeros((64, 95), np.float32)})
    kernel.close()


def test_nan_and_infinity_come_through(tmp_path: Path) -> None:
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 88.7, 89.5, -87.4, -100.0, -105.0, 1e30, -1e30] + [0.5] * 20,
        np.float32,
    )
    with np.errstate(over="ignore"):
        wanted = {"Exp": np.exp(special.astype(np.float64)), "Tanh": np.tanh(special), "Relu": None}
    wanted["Relu"] = np.where(special < 0, 0, special)
    for name, right in wanted.items():
        operator = one(name, (32,))
        (tmp_path / name).mkdir()
        artifact = ROUTE.build(operator, TARGET, SETTING, candidates(operator)[0], tmp_path / name)
        found = run(artifact, operator, {0: special})[0]
        with np.errstate(over="ignore"):
            expected = np.asarray(right).astype(np.float32)
        assert np.allclose(found, expected, rtol=5e-7, atol=2e-45, equal_nan=True), name


def test_gather_never_reads_outside_its_tensor(tmp_path: Path) -> None:
    operator = one("Gather", (5, 3), typed("int64", 4), axis=0)
    artifact = ROUTE.build(operator, TARGET, SETTING, candidates(operator)[0], tmp_path)
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    found = run(artifact, operator, {0: table, 1: np.array([1, -1, 1 << 40, -(1 << 40)])})[0]
    assert np.array_equal(found[:2], table[[1, 4]])
    assert set(found[2:].flatten()) <= set(table.flatten())
