"""Gathers and scatters. ONNX counts a negative index from the end; PyTorch's own calls refuse it."""

from __future__ import annotations

import math

import torch

from opatlas.load.torch.ops.site import Builder, Built, TorchSite
from opatlas.load.torch.ops.types import float_type


def _gather(site: TorchSite) -> Built:
    axis = site.axis()
    size = site.shape(0)[axis]
    known = site.content(1)
    if known is not None:
        return _gather_known(site, axis, _wrap(torch.as_tensor(known), size))
    made, flat = site.output().shape, len(site.shape(1)) == 1

    def rows_of(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        if flat:
            return x.index_select(axis, indices)
        return x.index_select(axis, indices.reshape(-1)).reshape(made)

    def run(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        try:
            return rows_of(x, indices)  # what an embedding is, and several times faster than x[indices]
        except (IndexError, RuntimeError):  # a negative index; one out of bounds raises again
            return rows_of(x, _wrap(indices, size))

    return run


def _gather_known(site: TorchSite, axis: int, rows: torch.Tensor) -> Built:
    if rows.ndim == 0:
        row = int(rows)
        return lambda x, *_: x.select(axis, row)
    if rows.ndim == 1:
        return lambda x, *_: x.index_select(axis, rows)
    flat, made = rows.reshape(-1), site.output().shape
    return lambda x, *_: x.index_select(axis, flat).reshape(made)


def _wrap(indices: torch.Tensor, size: int) -> torch.Tensor:
    return torch.where(indices < 0, indices + size, indices).long()


def _gather_elements(site: TorchSite) -> Built:
    axis = site.axis()
    size = site.shape(0)[axis]
    known = site.content(1)
    if known is not None:
        rows = _wrap(torch.as_tensor(known), size)
        return lambda x, *_: torch.gather(x, axis, rows)
    return lambda x, indices: torch.gather(x, axis, _wrap(indices, size))


def _gather_nd(site: TorchSite) -> Built:
    batch = site.attrs["batch_dims"]
    shape, depth = site.shape(0), site.shape(1)[-1]
    sizes = torch.tensor(shape[batch : batch + depth])
    made = site.output().shape
    outer, blocks = math.prod(shape[:batch]), shape[batch:]

    def run(x, indices=None):
        rows = torch.as_tensor(site.content(1)) if indices is None else indices
        rows = rows.reshape(outer, -1, depth).long()
        rows = torch.where(rows < 0, rows + sizes, rows)
        flat = x.reshape(outer, *blocks)
        first = torch.arange(outer).reshape(outer, 1).expand(rows.shape[:2])
        return flat[(first, *rows.unbind(-1))].reshape(made)

    return run


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter_elements(site: TorchSite) -> Built:
    axis, reduction = site.axis(), site.attrs["reduction"]
    size = site.shape(0)[axis]
    if reduction == "none":
        return lambda x, indices, updates: x.scatter(axis, _wrap(indices, size), updates)
    mode = _REDUCTIONS[reduction]
    return lambda x, indices, updates: x.scatter_reduce(axis, _wrap(indices, size), updates, mode)


def _scatter_nd(site: TorchSite) -> Built:
    shape, depth = site.shape(0), site.shape(1)[-1]
    sizes = torch.tensor(shape[:depth])
    steps = torch.tensor([math.prod(shape[axis + 1 : depth]) for axis in range(depth)])
    reduction = site.attrs["reduction"]

    def run(x, indices, updates):
        if indices is None:
            indices = torch.as_tensor(site.content(1))
        rows = indices.reshape(-1, depth).long()
        rows = (torch.where(rows < 0, rows + sizes, rows) * steps).sum(-1)
        flat = x.reshape(math.prod(shape[:depth]), -1)
        new = updates.reshape(-1, flat.shape[1])
        if reduction == "none":
            return flat.index_copy(0, rows, new).reshape(shape)
        rows = rows[:, None].expand_as(new)
        return flat.scatter_reduce(0, rows, new, _REDUCTIONS[reduction]).reshape(shape)

    return run


def _one_hot(site: TorchSite) -> Built:
    made, axis = site.output().shape, site.axis()
    depth = made[axis]
    levels = torch.arange(depth).reshape([depth if index == axis else 1 for index in range(len(made))])
    content = site.content(2)
    known = None if content is None else torch.as_tensor(content).to(float_type(site, site.output().dtype))

    def run(indices, _depth=None, pair=None):
        pair = known if pair is None else pair
        off, on = pair.unbind(0)
        rows = _wrap(indices, depth).unsqueeze(axis)
        return torch.where(rows == levels, on, off)

    return run


def _reverse_sequence(site: TorchSite) -> Built:
    time, batch = site.axis("time_axis"), site.axis("batch_axis")
    steps = site.shape(0)[time]

    def run(x, lengths=None):
        lengths = torch.as_tensor(site.content(1)) if lengths is None else lengths
        line = torch.arange(steps)[:, None]
        rows = torch.where(line < lengths, lengths - 1 - line, line)
        if time > batch:
            rows = rows.t()
        shape = [1] * x.ndim
        shape[time], shape[batch] = x.shape[time], x.shape[batch]
        return torch.gather(x, time, rows.reshape(shape).expand_as(x))

    return run


BUILDERS: dict[str, Builder] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
