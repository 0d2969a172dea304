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
from tests.opatlas.load.operators import Case, expected_by_ort, normal, operator_of  # noqa: E402
from tuning.routes.base import Budget, BuiltArtifact, Candidate, No, RouteError  # noqa: E402
from tuning.routes.compiler.xla import XlaRoute  # noqa: E402
from tuning.routes.registry import ROUTES  # noqa: E402

ROUTE, TARGET = XlaRoute(), detect_target()


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
    region = np.array([0, 0, 0.1, 0.1, 1, 1, 0.9, 0.9], np.float32)
    scales = np.array([1, 1, 0.5, 0.5], np.float32)
    attributes = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    cropped = Case("Resize", [normal(1, 1, 4, 4), region, scales], attributes, [1, 2])
    with pytest.raises(RouteError, match="Resize of a region"):
        built(operator_of(cropped)[0], tmp_path)

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
        timeout=240,
    )
