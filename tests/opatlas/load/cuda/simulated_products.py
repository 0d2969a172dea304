"""Products that libraries are asked for, and column-major matrices in a simulated device's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opatlas.identity import Operator, parse_operator
from opatlas.load.cuda.module import DeviceKernel
from tests.opatlas.load.cuda.simulated import SimulatedDriver


def tensor(*shape: int, **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "float32", **more}


DOCUMENTS: list[dict[str, Any]] = [
    {"op": "MatMul", "inputs": [tensor(4, 6), tensor(6, 5)]},
    {"op": "MatMul", "inputs": [tensor(2, 3, 4, 6), tensor(6, 5)]},
    {"op": "MatMul", "inputs": [tensor(2, 3, 4, 6), tensor(2, 3, 6, 5)]},
    {"op": "MatMul", "inputs": [tensor(4, 6), tensor(3, 6, 5)]},
    {"op": "Gemm", "attrs": {"transA": 1, "alpha": 0.5}, "inputs": [tensor(6, 4), tensor(6, 5)]},
    {"op": "Gemm", "attrs": {"transB": 1}, "inputs": [tensor(4, 6), tensor(5, 6, const=True)]},
    {"op": "Gemm", "attrs": {"transA": 1, "transB": 1}, "inputs": [tensor(6, 4), tensor(5, 6)]},
]
PRODUCT = parse_operator(DOCUMENTS[0])


def shapes(document: dict[str, Any]) -> str:
    return str([one["shape"] for one in document["inputs"]])


def matrix(device: SimulatedDriver, address: int, rows: int, columns: int, step: int) -> np.ndarray:
    """Of float32, a column ``step`` elements behind the last."""
    flat = device.floats(address, step * (columns - 1) + rows)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4, 4 * step))


def assert_computed(operator: Operator, load: Callable[[], DeviceKernel]) -> None:
    """Run the kernel on random values and hold it against NumPy's product."""
    random = np.random.default_rng(5)
    arrays = {
        number: random.standard_normal(operator.inputs[number].shape).astype(np.float32)
        for number in operator.tensor_inputs
    }
    kernel = load()
    kernel.prepare({number: arrays[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: arrays[number] for number in operator.runtime_inputs})
    bound()
    node = operator.nodes[0]
    a, b = (arrays[number] for number in node.inputs)
    a = a.T if node.attributes.get("transA") else a
    b = b.T if node.attributes.get("transB") else b
    wanted = node.attributes.get("alpha", 1.0) * (a @ b)
    np.testing.assert_allclose(bound.outputs()[0], wanted, rtol=1e-5, atol=1e-5)
