"""What TVM compiles computes what PyTorch computes, without TVM beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.identity import Operator, Setting
from tests import by_day
from tests.tuning.routes.compiler.tvm_cases import (
    ROUTE,
    TARGET,
    const,
    data,
    first_candidates,
    lying,
    one,
    random_inputs,
    reference,
    run,
    typed,
)
from tuning.routes.base import Candidate, RouteError

pytestmark = pytest.mark.skipif(not ROUTE.available(TARGET), reason="TVM is not installed as pinned")

CONV = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
OPERATORS = {
    "conv": lambda: one("Conv", (1, 16, 14, 14), const(32, 16, 3, 3), const(32), **CONV),
    "conv odd": lambda: one("Conv", (2, 13, 17, 11), const(19, 13, 3, 3), strides=[2, 1], **CONV),
    "conv runtime weights": lambda: one("Conv", (1, 8, 9, 10), (24, 8, 3, 3), **CONV),
    "conv dilated": lambda: one("Conv", (1, 8, 20, 20), const(16, 8, 3, 3), dilations=[2, 2]),
    "conv grouped": lambda: one("Conv", (1, 32, 13, 13), const(64, 16, 3, 3), const(64), group=2, **CONV),
    "conv depthwise": lambda: one("Conv", (1, 24, 16, 16), const(24, 1, 3, 3), group=24, **CONV),
    "conv 1x1": lambda: one("Conv", (1, 64, 7, 7), const(48, 64, 1, 1), const(48)),
    "conv 1d": lambda: one("Conv", (2, 8, 33), const(16, 8, 5), const(16)),
    "matmul": lambda: one("MatMul", (48, 64), const(64, 96)),
    "matmul odd": lambda: one("MatMul", (13, 17), (17, 19)),
    "matmul batched": lambda: one("MatMul", (2, 3, 24, 16), (2, 3, 16, 40)),
    "matmul padded columns": lambda: one("MatMul", (33, 65), const(65, 130)),
    "matmul padded rows": lambda: one("MatMul", (97, 48), const(48, 64)),
    "gemm, both padded": lambda: one("Gemm", (61, 33), const(33, 97), const(97)),
    "matmul batched, rows padded": lambda: one("MatMul", (2, 53, 16), (2, 16, 32)),
    "matmul few columns": lambda: one("MatMul", (40, 64), (64, 10)),
    "matmul batched, padded": lambda: one("MatMul", (3, 20, 17), (3, 17, 97)),
    "gemm padded, with an epilogue": lambda: one("Gemm", (20, 33), const(97, 33), const(97), transB=1),
    "softmax no vector divides": lambda: one("Softmax", (9, 197), axis=-1),
    "matmul vector": lambda: one("MatMul", (1, 256), const(256, 1000)),
    "gemm": lambda: one("Gemm", (5, 33), const(40, 33), const(40), transB=1),
    "batch norm": lambda: one("BatchNormalization", (1, 7, 5, 3), const(7), const(7), const(7), const(7)),
    "relu": lambda: one("Relu", (3, 5, 7)),
    "prelu": lambda: one("PRelu", (3, 5, 7), (3, 5, 7)),
    "bitwise and": lambda: one("BitwiseAnd", typed("int32", 3, 5, 7), typed("int32", 3, 5, 7)),
    "sum": lambda: one("Sum", (2, 3, 4), (2, 3, 4), (2, 3, 4)),
    "add broadcast": lambda: one("Add", (4, 1, 6), (5, 1)),
    "max pool": lambda: one("MaxPool", (1, 6, 15, 15), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "average pool": lambda: one("AveragePool", (1, 6, 14, 14), kernel_shape=[3, 3], strides=[2, 2]),
    "global average pool": lambda: one("GlobalAveragePool", (2, 10, 13, 13)),
    "softmax": lambda: one("Softmax", (2, 3, 128), axis=-1),
    "softmax odd": lambda: one("Softmax", (7, 13), axis=0),
    "lrn": lambda: one("LRN", (1, 12, 5, 5), size=5, alpha=0.01, beta=0.75, bias=1.0),
    "layer norm": lambda: one("LayerNormalization", (2, 9, 96), const(96), const(96), axis=-1),
    "gelu": lambda: one("Gelu", (5, 77)),
    "erf": lambda: one("Erf", (129,)),
    "tanh": lambda: one("Tanh", (3, 43)),
    "sigmoid": lambda: one("Sigmoid", (3, 43)),
    "reduce mean": lambda: one("ReduceMean", (6, 64), data(1)),
    "transpose": lambda: one("Transpose", (2, 3, 4, 5), perm=[0, 2, 3, 1]),
    "reshape": lambda: one("Reshape", (2, 3, 4), data(4, 6)),
    "concat": lambda: one("Concat", (1, 3, 5), (1, 4, 5), axis=1),
    "split": lambda: one("Split", (2, 12), data(3, 4, 5), axis=1),
    "gather": lambda: one("Gather", const(11, 6), typed("int64", 2, 5), axis=0),
    "where": lambda: one("Where", typed("bool", 1, 4), (3, 4), (3, 1)),
    "double": lambda: one("MatMul", typed("float64", 8, 9), typed("float64", 9, 8)),
    "half": lambda: one("MatMul", typed("float16", 32, 48), const(48, 64, dtype="float16")),
    "matmul of turned": lambda: one("MatMul", lying((48, 64), 1, 48), lying((64, 96), 1, 64)),
    "matmul of heads": lambda: one(
        "MatMul", lying((2, 4, 16, 24), 1536, 24, 96, 1), lying((2, 4, 24, 16), 1536, 24, 1, 96)
    ),
    "gemm of turned weights": lambda: one(
        "Gemm", (33, 64), lying((64, 50), 1, 64, role="const"), const(50), alpha=0.5
    ),
    "conv of channels last": lambda: one(
        "Conv", lying((1, 16, 14, 14), 3136, 1, 224, 16), const(32, 16, 3, 3), const(32), **CONV
    ),
    "conv of a slice": lambda: one("Conv", lying((2, 16, 14, 14), 6272, 196, 14, 1), const(32, 16, 1, 1)),
    "add of turned": lambda: one("Add", lying((4, 6), 1, 4), (4, 6)),
    "copy of turned": lambda: one("Identity", lying((4, 6), 1, 4)),
    "add of overlapping": lambda: one("Add", lying((4, 6), 1, 1), lying((4, 6), 0, 0)),
    "layer norm of turned": lambda: one(
        "LayerNormalization", lying((2, 9, 96), 864, 1, 9), const(96), const(96), axis=-1
    ),
    "sum of a slice": lambda: one("ReduceSum", lying((6, 64), 128, 1), data(1)),
    "gather from a slice": lambda: one("Gather", lying((11, 6), 12, 1), typed("int64", 2, 5), axis=0),
    "half of turned": lambda: one(
        "MatMul", lying((32, 48), 1, 32, dtype="float16"), const(48, 64, dtype="float16")
    ),
}
ONE_CALL = ("matmul of turned", "matmul of heads", "conv of channels last", "layer norm of turned")
"""Read strided inputs themselves: there is no copy in front."""
BY_DAY = (
    "conv", "conv depthwise", "matmul", "matmul padded rows", "gemm padded, with an epilogue", "batch norm",
    "relu", "add broadcast", "max pool", "softmax no vector divides", "layer norm", "reduce mean", "concat",
    "gather", "half", *ONE_CALL, "add of overlapping",
)  # fmt: skip
"""One for each way of computing, of padding and of reading what lies strided."""


def assert_close(found: list[np.ndarray], wanted: list[np.ndarray], operator: Operator) -> None:
    relative = 4e-3 if "float16" in {value.dtype for value in operator.inputs} else 3e-5
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        scale = max(1.0, float(np.abs(theirs).max()))
        assert np.allclose(ours.astype(np.float64), theirs, rtol=relative, atol=relative * scale)


@pytest.mark.parametrize("name", by_day.only(BY_DAY, OPERATORS))
def test_computes_what_pytorch_computes(name: str, tmp_path: Path) -> None:
    operator, setting = OPERATORS[name](), Setting(threads=2)
    assert ROUTE.supports(operator, setting)
    inputs = random_inputs(operator)
    for number, candidate in enumerate(first_candidates(operator, setting)):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            artifact = ROUTE.build(operator, TARGET, setting, candidate, folder)
        except RouteError:
            assert number > 0, "the first candidate must always be possible"
            continue
        assert_close(run(artifact, operator, inputs), reference(operator, inputs), operator)
        assert artifact.facts["calls"] == 1 or name not in ONE_CALL
        assert artifact.manifest.files.keys() == {"kernel.so"}
        assert {path.name for path in folder.iterdir()} == {"kernel.so"}


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> tuple[Operator, dict]:
    operator = one("Conv", (1, 32, 28, 28), const(64, 32, 3, 3), const(64), **CONV)
    made = {}
    for threads in (1, 2):
        setting = Setting(threads=threads)
        folder = tmp_path_factory.mktemp(f"threads{threads}")
        made[threads] = ROUTE.build(operator, TARGET, setting, first_candidates(operator, setting)[0], folder)
    return operator, made


def test_one_and_two_threads_agree(conv: tuple[Operator, dict]) -> None:
    operator, made = conv
    inputs = random_inputs(operator)
    first, second = (run(made[threads], operator, inputs)[0] for threads in (1, 2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("offset_bytes", [4, 16, 60])
def test_inputs_may_lie_anywhere(conv: tuple[Operator, dict], offset_bytes: int) -> None:
    operator, made = conv
    inputs = random_inputs(operator, offset_bytes=offset_bytes)
    assert_close(run(made[2], operator, inputs), reference(operator, inputs), operator)


def test_constants_are_packed_once_and_weights_may_change_only_by_preparing(
    conv: tuple[Operator, dict],
) -> None:
    operator, made = conv
    assert made[2].facts["prepare_calls"] >= 1
    assert made[2].facts["state_bytes"] >= 64 * 32 * 9 * 4
    first, second = random_inputs(operator, seed=1), random_inputs(operator, seed=2)
    assert not np.allclose(run(made[2], operator, first)[0], run(made[2], operator, second)[0])


def test_the_library_needs_libc_only_and_exports_the_abi_only(conv: tuple[Operator, dict]) -> None:
    library = conv[1][2].folder / "kernel.so"
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"^\s*([\w.+-]+)\.so", needed, re.MULTILINE))
    assert names <= {"libc", "libm", "libpthread", "linux-vdso", "ld-linux-x86-64", "/lib64/ld-linux-x86-64"}
    listed = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    exported = set(re.findall(r" [TDBRV] (\S+)", listed))
    assert exported == {"opatlas_run", "opatlas_prepare", "opatlas_release", "opatlas_error"}


_FRESH = """
import json, sys
for name in ("tvm", "tvm_ffi", "torch"):
    sys.modules[name] = None
from pathlib import Path
from typing import Any
import numpy as np
from opatlas.load import Manifest, load
folder = Path(sys.argv[1])
kernel = load(Manifest.from_json(json.loads((folder / "manifest.json").read_text())), folder)
arrays = np.load(folder / "arrays.npz")
kernel.prepare({1: arrays["1"], 2: arrays["2"]})
bound = kernel.bind({0: arrays["0"]})
bound()
np.save(folder / "out.npy", bound.outputs()[0])
kernel.close()
"""


def test_a_process_without_tvm_loads_and_runs_it(conv: tuple[Operator, dict]) -> None:
    import json

    operator, made = conv
    folder, inputs = made[2].folder, random_inputs(operator)
    (folder / "manifest.json").write_text(json.dumps(made[2].manifest.to_json()))
    np.savez(folder / "arrays.npz", **{str(number): array for number, array in inputs.items()})
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    subprocess.run([sys.executable, "-c", _FRESH, str(folder)], check=True, env=environment)
    assert np.array_equal(np.load(folder / "out.npy"), run(made[2], operator, inputs)[0])


def test_building_twice_gives_the_same_bytes(conv: tuple[Operator, dict], tmp_path: Path) -> None:
    operator, made = conv
    setting = Setting(threads=2)
    again = ROUTE.build(operator, TARGET, setting, first_candidates(operator, setting)[0], tmp_path)
    assert again.manifest == made[2].manifest


def traces_of(schedule: str) -> dict[str, Any]:
    """A candidate's parameters from what an artifact keeps."""
    return {"traces": json.loads(schedule)["functions"]}


def test_a_schedule_can_be_turned_into_code_again(conv: tuple[Operator, dict], tmp_path: Path) -> None:
    operator, made = conv
    candidate = Candidate("tvm", traces_of(made[2].schedule), "from its schedule")
    again = ROUTE.build(operator, TARGET, Setting(threads=2), candidate, tmp_path)
    assert again.manifest.files == made[2].manifest.files


def test_people_can_read_what_was_compiled(conv: tuple[Operator, dict]) -> None:
    source = conv[1][2].source
    assert "T.prim_func" in source and "vfmadd" in source
    assert len(source) < 100_000


def test_nan_and_infinity_come_through_exp(tmp_path: Path) -> None:
    operator, setting = one("Exp", (64,)), Setting(threads=1)
    artifact = ROUTE.build(operator, TARGET, setting, first_candidates(operator, setting)[0], tmp_path)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.7, 88.8, -87.4, -100.0, -104.0, 1e30, -1e30]
    x = np.array(special + [0.5] * 52, np.float32)
    with np.errstate(over="ignore"):
        wanted = np.exp(x.astype(np.float64)).astype(np.float32)
    found = run(artifact, operator, {0: x})[0]
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.allclose(found, wanted, rtol=3e-7, atol=2e-45, equal_nan=True)


def test_a_schedule_of_another_operator_is_refused(conv: tuple[Operator, dict], tmp_path: Path) -> None:
    candidate = Candidate("tvm", traces_of(conv[1][2].schedule), "a convolution's")
    with pytest.raises(RouteError):
        ROUTE.build(one("Relu", (8, 8)), TARGET, Setting(threads=2), candidate, tmp_path)


def test_gather_never_reads_outside_its_tensor(tmp_path: Path) -> None:
    operator, setting = one("Gather", (5, 3), typed("int64", 4), axis=0), Setting(threads=1)
    artifact = ROUTE.build(operator, TARGET, setting, first_candidates(operator, setting)[0], tmp_path)
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    found = run(artifact, operator, {0: table, 1: np.array([1, -1, 1 << 40, -(1 << 40)])})[0]
    assert np.array_equal(found[:2], table[[1, 4]])
    assert set(found[2:].flatten()) <= set(table.flatten())
