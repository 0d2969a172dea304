"""What is synchronous and what is not: data per operator and device, each line with its reason."""

from __future__ import annotations

import pytest

from opatlas.identity.place.kinds import CPU, CUDA, DeviceKind
from opatlas.streams import manners
from opatlas.streams.manners import Manner, manner_of, manner_of_copy


@pytest.mark.parametrize(
    ("op_type", "device", "manner"),
    [
        ("MatMul", CPU, Manner.SYNC),
        ("NonZero", CPU, Manner.SYNC),
        ("NobodysOwn", CPU, Manner.SYNC),
        ("MatMul", CUDA, Manner.ASYNC),
        ("NobodysOwn", CUDA, Manner.ASYNC),
        ("NonZero", CUDA, Manner.SYNC),
        ("Unique", CUDA, Manner.SYNC),
        ("If", CUDA, Manner.SYNC),
    ],
)
def test_an_operator_is_classified_per_device(op_type: str, device: DeviceKind, manner: Manner) -> None:
    """[0006]: operator information says whether an operator is asynchronous or synchronous; [0030]: an
    operator has a kernel for each kind of device."""
    found = manner_of(op_type, device)
    assert found.manner is manner and len(found.reason) > 20


def test_a_copy_is_a_kernel_of_its_own() -> None:
    """[0031]: CPU to GPU, GPU to CPU and GPU to GPU are copy kernels."""
    found = {
        (source.name, target.name): manner_of_copy(source, target).manner
        for source in (CPU, CUDA)
        for target in (CPU, CUDA)
    }
    assert found == {
        ("cpu", "cpu"): Manner.SYNC,
        ("cpu", "cuda"): Manner.ASYNC,
        ("cuda", "cpu"): Manner.SYNC,
        ("cuda", "cuda"): Manner.ASYNC,
    }


def test_another_vendors_device_needs_no_line() -> None:
    other = DeviceKind(name="npu", title="NPU", cache_levels=(), whole={})
    assert manner_of("MatMul", other) == manner_of("MatMul", CUDA)
    assert manner_of_copy(other, CPU) == manner_of_copy(CUDA, CPU)


def test_every_line_is_read() -> None:
    lines = manners._OPERATORS.strip().splitlines()
    assert len(manners._BY_OPERATOR) == len(lines) and len(manners._BY_COPY) == 4
