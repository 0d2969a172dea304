"""What cuBLAS and cuBLASLt have in common: what they call types, where a product's matrices lie on the
device, and a kernel of one launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opatlas.identity.operator import Operator
from opatlas.load.cuda.driver import CudaDriver
from opatlas.load.cuda.matrices import MatrixProduct, product_of
from opatlas.load.cuda.module import DeviceKernel, LaunchTensors

ALIGNMENT = 256

# From cublas_api.h and library_types.h: part of the libraries' stable interface.
TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
COMPUTE_FLOAT32, COMPUTE_TF32 = 68, 77


def compute_type(product: MatrixProduct, tf32: bool) -> int:
    """How sums are kept, and whether operands of float32 may be rounded on their way."""
    return COMPUTE_TF32 if tf32 and product.dtype == "float32" else COMPUTE_FLOAT32


@dataclass(frozen=True)
class Addresses:
    """On the device."""

    first: int
    second: int
    made: int
    workspace: int


class ProductKernel(DeviceKernel):
    """One product by one launch of a library's. Raises :class:`~opatlas.errors.LoadError` where the operator
    is none."""

    loads_late = True

    def __init__(self, operator: Operator, recipe: Mapping[str, Any], driver: CudaDriver | None) -> None:
        self.product = product_of(operator)
        super().__init__(operator, driver, graphs=bool(recipe["graphs"]), alignment=ALIGNMENT)
        self.tf32 = bool(recipe["tf32"])

    def multiplier(self, at: Addresses) -> Callable[[int], None]:
        """The launch into the stream that it is given; returns at once."""
        raise NotImplementedError

    def run_launches(self, tensors: LaunchTensors) -> list[Callable[[], None]]:
        self._must_be_open()
        multiply = self.multiplier(
            Addresses(
                tensors.inputs[self.product.first.number].address,
                tensors.inputs[self.product.second.number].address,
                tensors.outputs[0].address,
                tensors.workspace.address,
            )
        )
        return [lambda: multiply(self.driver.stream)]
