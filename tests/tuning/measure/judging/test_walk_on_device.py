"""The walk on a device that is only described: all that it makes has to lie there.

PyTorch's fake tensors know where they lie, and refuse to be mixed with the host's as a GPU's would. The
device is ``meta``: a PyTorch without CUDA moves no tensor to one called ``cuda``, not even a fake one. What
they would hold is not computed, so what a branch asks of them is made up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from opatlas.identity import Setting
from opatlas.load.torch.graph import missing
from tests import by_day
from tests.opatlas.load.cases import FAMILIES
from tests.opatlas.load.operators import Case, operator_of
from tuning.measure.judging.rounding.walk import GraphWalk
from tuning.measure.judging.tolerance import Precision

DEVICE = "meta"
_ASKS = {"_local_scalar_dense", "is_nonzero", "equal"}


class MadeUp(TorchDispatchMode):
    """Whatever is asked of a tensor's content is no, or nought."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function._schema.name.removeprefix("aten::") in _ASKS:
            return False if args[0].dtype == torch.bool else 0.0
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def content(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants that nodes read while they are built come back from the device as they went."""
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: tensor.on_host)


def walked(case: Case) -> list[tuple[Any, Any]] | None:
    operator, arrays = operator_of(case)
    if missing(operator):
        return None
    wide = {
        number: torch.from_numpy(array.astype(np.float64) if array.dtype.kind == "f" else np.array(array))
        for number, array in arrays.items()
    }
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True), MadeUp(), torch.device(DEVICE):
        there = {}
        for number, tensor in wide.items():
            there[number] = tensor.to(DEVICE)
            there[number].on_host = tensor
        constants = {number: there[number] for number in operator.constant_inputs}
        walk = GraphWalk(operator, constants, Precision(Setting()))
        return walk.run({number: there[number] for number in operator.runtime_inputs})


@pytest.mark.parametrize("family", by_day.only(["linear", "convolutions", "pools", "attentions"], FAMILIES))
def test_every_step_stays_on_the_device(family: str) -> None:
    results = [(case.op, made) for case in FAMILIES[family] if (made := walked(case)) is not None]
    assert results
    for op, made in results:
        for value, error in made:
            assert value.device.type == DEVICE, op
            assert error is None or error.device.type == DEVICE, op
