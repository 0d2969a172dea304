"""Layouts: strides in elements, with one spelling for each."""

from __future__ import annotations

from collections.abc import Sequence

from opatlas.identity.bounds import MAX_ELEMENTS, refuse, refuse_unmapped


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major dense tensor."""
    strides, step = [], 1
    for dim in reversed(shape):
        strides.append(step)
        step *= dim
    return tuple(reversed(strides))


def canonical_strides(
    shape: Sequence[int], strides: Sequence[int] | None, what: str, where: str = ""
) -> tuple[int, ...] | None:
    """Strides with one spelling: None where row-major and dense; 1 in a dimension of one element, where they
    mean nothing. Refuses negative ones and those of another length than ``shape``."""
    if strides is None:
        return None
    if len(strides) != len(shape):
        refuse(f"{what} has {len(shape)} dimensions and {len(strides)} strides; give one each.", where)
    if any(stride < 0 for stride in strides):
        refuse_unmapped(f"{what} has a negative stride; strides count elements, from 0 up.", where)
    extent = 1 + sum((dim - 1) * stride for dim, stride in zip(shape, strides, strict=True))
    if extent > MAX_ELEMENTS:
        refuse_unmapped(
            f"{what} spans {extent} elements by its strides; at most {MAX_ELEMENTS} are allowed.", where
        )
    dense = dense_strides(shape)
    if all(dim == 1 or stride == row for dim, stride, row in zip(shape, strides, dense, strict=True)):
        return None
    return tuple(1 if dim == 1 else stride for dim, stride in zip(shape, strides, strict=True))


def storage_elements(shape: Sequence[int], strides: Sequence[int] | None) -> int:
    """Elements that a tensor's storage spans."""
    steps = dense_strides(shape) if strides is None else strides
    return 1 + sum((dim - 1) * stride for dim, stride in zip(shape, steps, strict=True))
