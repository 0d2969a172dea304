"""XLA's programs mean what ONNX says, keep the operator's layouts, and are built in forked children."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from opatlas.identity import Operator, Setting, detect_target, parse_operator  # noqa: E402
from opatlas.identity.operator import Node  # noqa: E402
from opatlas.load import load  # noqa: E402
from opatlas.load.xla.lower import lowered  # noqa: E402
from opatlas.load.xla.table import FAMILY_OF, missing  # noqa: E402
from tests.opatlas.load.cases import FAMILIES  # noqa: E402
from tests.opatlas.load.operators import Case, expected, expected_by_ort, normal, operator_of  # noqa: E402
from tuning.routes.base import Budget, BuiltArtifact, Candidate, No, RouteError  # noqa: E402
from tuning.routes.compiler.xla import XlaRoute  # noqa: E402
from tuning.routes.registry import ROUTES  # noqa: E402

ROUTE, TARGET = XlaRoute(), detect_target()
SUPPORTED = [
    pytest.param(case, id=f"{family}-{case}")
    for family, cases in FAMILIES.items()
    for case in (cases[::3] if family in ("resizes", "reductions") else cases)
    if case.op in FAMILY_OF and not (case.op == "MaxPool" and case.outputs > 1) and not case.strides
]
"""Layouts have tests of their own, through the loader."""


def answer(case: Case) -> list[np.ndarray]:
    """ONNX Runtime's answer where it has the operator at this opset, else the reference evaluator's."""
    try:
        return expected_by_ort(case)
    except Exception:
        return expected(case)


def built(operator: Operator, folder: Path, threads: int = 1, **parameters: object) -> BuiltArtifact:
    candidate = Candidate("xla", {"variant": "plain", **parameters}, "a test's")
    return ROUTE.build(operator, TARGET, Setting(threads=threads), candidate, folder)


def loaded_answer(
    operator: Operator, artifact: BuiltArtifact, inputs: dict[int, np.ndarray]
) -> list[np.ndarray]:
    kernel = load(artifact.manifest, artifact.folder)
    kernel.prepare({number: inputs[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: inputs[number] for number in operator.runtime_inputs})
    bound()
    return [np.array(array) for array in bound.outputs()]


@pytest.mark.parametrize("case", SUPPORTED)
def test_lowering_equals_onnx(case: Case) -> None:
    operator, inputs = operator_of(case)
    assert missing(operator) is None
    dense = [np.array(inputs[number]) for number in operator.tensor_inputs]
    with jax.enable_x64(True):
        made = [np.asarray(array) for array in jax.jit(lowered(operator, "plain"))(*dense)]
    wanted = answer(case)
    assert len(made) == len(wanted) == len(operator.outputs)
    for array, value, want in zip(made, operator.output_values, wanted, strict=True):
        assert array.shape == value.shape == want.shape and str(array.dtype) == value.dtype
        np.testing.assert_allclose(array, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("variant", ["channels-last", "product", "shifted"])
@pytest.mark.parametrize(
    "case", [case for case in FAMILIES["convolutions"] if case.op == "Conv"][2:12], ids=str
)
def test_every_way_of_writing_a_convolution_down_is_the_same(case: Case, variant: str) -> None:
    operator, inputs = operator_of(case)
    made = jax.jit(lowered(operator, variant))(*[inputs[number] for number in operator.tensor_inputs])
    np.testing.assert_allclose(np.asarray(made[0]), answer(case)[0], rtol=2e-4, atol=2e-5)


POOLS = [case for case in FAMILIES["pools"] if case.op in ("MaxPool", "AveragePool") and case.outputs == 1]


@pytest.mark.parametrize("case", POOLS, ids=str)
def test_pools_of_slices_are_the_same(case: Case) -> None:
    operator, inputs = operator_of(case)
    made = jax.jit(lowered(operator, "shifted"))(inputs[0])
    np.testing.assert_allclose(np.asarray(made[0]), answer(case)[0], rtol=2e-4, atol=2e-5)


def bytes_of(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    low = np.iinfo(dtype).min
    return np.random.default_rng(2).integers(low, low + 256, shape).astype(dtype)


NARROW = [
    Case("QuantizeLinear", [normal(3, 8), np.float32(0.02), np.uint8(7)]),
    Case(
        "QuantizeLinear",
        [normal(3, 8), np.full(8, 0.03, np.float32), bytes_of(8, dtype=np.int8)],
        {"axis": 1},
    ),
    Case("DequantizeLinear", [bytes_of(3, 8), np.float32(0.02), np.uint8(7)]),
    Case("DequantizeLinear", [bytes_of(3, 8), np.full(3, 0.1, np.float32), bytes_of(3)], {"axis": 0}),
    Case("DynamicQuantizeLinear", [normal(3, 8)], outputs=3),
    Case("MatMulInteger", [bytes_of(3, 8), bytes_of(8, 5)]),
    Case("MatMulInteger", [bytes_of(3, 8), bytes_of(8, 5, dtype=np.int8), np.uint8(9), np.int8(-3)]),
    Case(
        "ConvInteger",
        [bytes_of(1, 2, 6, 6), bytes_of(3, 2, 3, 3), np.uint8(5), np.uint8(3)],
        {"pads": [1] * 4},
    ),
]


@pytest.mark.parametrize("case", NARROW, ids=str)
def test_whole_numbers_of_8_bits_are_exact(case: Case) -> None:
    case = replace(case, inputs=[np.asarray(array) for array in case.inputs])
    operator, inputs = operator_of(case)
    with jax.enable_x64(True):
        made = jax.jit(lowered(operator, "plain"))(*[inputs[number] for number in operator.tensor_inputs])
    for array, value, want in zip(made, operator.output_values, answer(case), strict=True):
        assert str(array.dtype) == value.dtype
        np.testing.assert_allclose(np.asarray(array), want, rtol=1e-6)


WHOLE = np.arange(2 * 9 * 8, dtype=np.float32).reshape(2, 9, 8)
STRIDED = {
    "turned": ((8, 6), (1, 8), np.arange(48, dtype=np.float32).reshape(6, 8).T),
    "rows with gaps": ((9, 5), (8, 1), WHOLE[0][:, :5]),
    "turned with gaps": ((5, 2, 4), (1, 72, 16), WHOLE[:, ::2][:, :4, :5].transpose(2, 0, 1)),
    "repeated": ((3, 4), (0, 1), np.broadcast_to(np.arange(4, dtype=np.float32), (3, 4))),
    "one number": ((3, 4), (0, 0), np.broadcast_to(np.float32(3), (3, 4))),
    "overlapping": (
        (5, 3),
        (1, 1),
        np.lib.stride_tricks.sliding_window_view(np.arange(7, dtype=np.float32), 3),
    ),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strided_inputs_are_read_where_they_lie(name: str, tmp_path: Path) -> None:
    shape, strides, array = STRIDED[name]
    assert array.shape == shape
    value = {"shape": list(shape), "dtype": "float32", "strides": list(strides)}
    operator = parse_operator({"op": "Neg", "attrs": {}, "inputs": [value]})
    kernel = load((artifact := built(operator, tmp_path)).manifest, artifact.folder)
    bound = kernel.bind({0: array})
    bound()
    np.testing.assert_array_equal(bound.outputs()[0], -array)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool", "float64", "int64"])
def test_other_element_types_go_through_the_loader(dtype: str, tmp_path: Path) -> None:
    from opatlas.load.dtypes import numpy_dtype

    operator = parse_operator({"op": "Concat", "attrs": {"axis": 0}, "inputs": [
        {"shape": [3], "dtype": dtype}, {"shape": [3], "dtype": dtype}]})  # fmt: skip
    one, two = (np.array(numbers).astype(numpy_dtype(dtype)) for numbers in ([1, 0, 2], [0, 5, 1]))
    (made,) = loaded_answer(operator, built(operator, tmp_path), {0: one, 1: two})
    assert made.dtype == one.dtype
    np.testing.assert_array_equal(made, np.concatenate([one, two]))


def test_fused_graph_of_several_nodes(tmp_path: Path) -> None:
    conv, inputs = operator_of(Case("Conv", [normal(1, 4, 8, 8), normal(6, 4, 3, 3)], {"pads": [1] * 4}, [1]))
    made = conv.produced[0]
    fused = replace(
        conv,
        nodes=(*conv.nodes, Node("Relu", (2,), (3,)), Node("Softmax", (3,), (4,), (("axis", 1),))),
        produced=(made, made, made),
        outputs=(4,),
    )
    for variant in ("plain", "product"):
        (tmp_path / variant).mkdir()
        (out,) = loaded_answer(fused, built(fused, tmp_path / variant, 2, variant=variant), inputs)
        hidden = np.maximum(expected_by_ort(Case("Conv", [inputs[0], inputs[1]], {"pads": [1] * 4}))[0], 0)
        wanted = np.exp(hidden) / np.exp(hidden).sum(1, keepdims=True)
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-6)


def test_artifact_keeps_what_people_read(tmp_path: Path) -> None:
    operator, _ = operator_of(Case("Softmax", [normal(4, 16)], {"axis": -1}))
    artifact = built(operator, tmp_path, vector_bits=512)
    assert "stablehlo" in artifact.source and "HloModule" in artifact.schedule
    assert artifact.facts["compile_s"] > 0 and artifact.facts["export_s"] > 0
    assert set(artifact.manifest.files) == {"kernel.stablehlo", "options.json"}
    assert artifact.manifest.needs == {name: metadata.version(name) for name in ("jax", "jaxlib")}


def test_it_says_what_it_cannot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    operator, _ = operator_of(Case("Det", [normal(2, 4, 4)]))
    assert "Det" in ROUTE.supports(operator, Setting()).reason  # type: ignore[union-attr]
    with pytest.raises(RouteError, match="Det"):
        built(operator, tmp_path)
    antialiased = Case("Resize", [normal(1, 1, 4, 4), None, np.array([1, 1, 0.5, 0.5], np.float32)],
                       {"mode": "linear", "antialias": 1}, [2])  # fmt: skip
    with pytest.raises(RouteError, match="antialias"):
        built(operator_of(antialiased)[0], tmp_path)

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    unavailable = ROUTE.available(TARGET)
    assert isinstance(unavailable, No) and "pip install jax" in unavailable.reason
    assert ROUTE.versions() == {}


def test_candidates_go_with_the_operator() -> None:
    def labels(case: Case) -> list[str]:
        found = ROUTE.candidates(operator_of(case)[0], TARGET, Setting(), Budget(1.0))
        return [
            str(candidate.parameters["variant"])
            for candidate in found
            if "vector_bits" not in candidate.parameters
        ]

    assert labels(Case("Softmax", [normal(4, 16)])) == ["plain"]
    assert labels(Case("Conv", [normal(1, 4, 8, 8), normal(6, 4, 1, 1)], fixed=[1]))[0] == "product"
    depthwise = Case("Conv", [normal(1, 4, 8, 8), normal(4, 1, 3, 3)], {"group": 4}, fixed=[1])
    assert labels(depthwise) == ["shifted", "plain"]
    assert labels(Case("MaxPool", [normal(1, 4, 8, 8)], {"kernel_shape": [3, 3]})) == ["shifted", "plain"]


def test_it_is_registered_and_asking_imports_no_jax() -> None:
    assert "xla" in [route.name for route in ROUTES]
    code = (
        "import sys\n"
        "from opatlas.identity import Setting, detect_target, parse_operator\n"
        "from tuning.routes.base import Budget\n"
        "from tuning.routes.compiler.xla import XlaRoute\n"
        "values = [{'shape': [4], 'dtype': 'float32'}]\n"
        "operator = parse_operator({'op': 'Relu', 'attrs': {}, 'inputs': values})\n"
        "xla, target = XlaRoute(), detect_target()\n"
        "xla.available(target), xla.supports(operator, Setting()), xla.versions()\n"
        "list(xla.candidates(operator, target, Setting(), Budget(1)))\n"
        "assert 'jax' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])


_FORK = """
import os, sys
from pathlib import Path
from tuning.routes.compiler.xla import warm
warm()
assert "torch" not in sys.modules, "the zygote carries PyTorch"
assert len(os.listdir("/proc/self/task")) == 1, "the zygote has threads"
from opatlas.identity import Setting, detect_target, parse_operator
from opatlas.load import load
from tuning.routes.base import Candidate
from tuning.routes.compiler.xla import XlaRoute
import numpy as np
operator = parse_operator({"op": "Exp", "attrs": {}, "inputs": [{"shape": [64], "dtype": "float32"}]})
for number in range(2):
    child = os.fork()
    if child == 0:
        folder = Path(sys.argv[1]) / str(number)
        folder.mkdir()
        candidate = Candidate("xla", {"variant": "plain"}, "")
        artifact = XlaRoute().build(operator, detect_target(), Setting(threads=1 + number), candidate, folder)
        bound = load(artifact.manifest, folder).bind({0: np.zeros(64, np.float32)})
        bound()
        os._exit(0 if bound.outputs()[0].sum() == 64 else 3)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_children_forked_after_warming_build_and_load(tmp_path: Path) -> None:
    environment = {"OPENBLAS_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [sys.executable, "-c", _FORK, str(tmp_path)],
        check=True,
        env=environment,
        cwd=Path(__file__).parents[4],
        timeout=60,
    )
