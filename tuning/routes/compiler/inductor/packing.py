"""Which constants of a compiled model stand for which weights.

Inductor's GEMM template packs constant weights while it compiles; the model then asks for the packed form.
A package serves any weights of the shape, so what was done to them is written down, for the loader to do it
with the weights that it is given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


class Constants:
    """Watches one compilation. ``buffers`` are the module's buffers by name, none sharing memory."""

    def __init__(self, buffers: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        self._names = {_memory(tensor): name for name, tensor in buffers.items() if tensor.numel()}
        self._known = {*buffers, *other}
        self._blocked: list[tuple[Any, dict[str, Any]]] = []
        self._added: dict[str, Any] = {}
        self.packed: dict[str, dict[str, Any]] = {}
        """Constant of the model → buffer, view of it and blocks, as the loader packs it."""
        self.unknown: set[str] = set()
        """Constants that Inductor made of itself: their values must be in the package."""

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Between these, Inductor tells what it does with constants."""
        import torch
        from torch._inductor.codegen.cpp_gemm_template import CppGemmTemplate
        from torch._inductor.graph import GraphLowering

        block = vars(CppGemmTemplate)["block_weight"]
        add = GraphLowering.allocate_non_dup_const_name

        def watched_block(cls: Any, weight: Any, new_size: Any, padding: int) -> Any:
            made = block.__func__(cls, weight, new_size, padding)
            if isinstance(weight, torch.Tensor) and _memory(weight) in self._names:
                name = self._names[_memory(weight)]
                self._blocked.append((made, _recipe(name, weight, new_size, padding)))
            return made

        def watched_add(graph: Any, name: str | None, data: Any) -> str:
            given: str = add(graph, name, data)
            name = graph.allocated_constant_name.get(given, given)
            if name not in self._known:
                self._added[name] = data
            return given

        template: Any = CppGemmTemplate
        lowering: Any = GraphLowering
        template.block_weight = classmethod(watched_block)
        lowering.allocate_non_dup_const_name = watched_add
        try:
            yield
            self._sort()
        finally:
            template.block_weight = block
            lowering.allocate_non_dup_const_name = add

    def _sort(self) -> None:
        """Tell packed weights from the rest, by value: Inductor hands on a copy, and some element types are
        packed further. The weights are random here, so that no two are alike."""
        for name, data in self._added.items():
            for made, recipe in self._blocked:
                if made.shape == data.shape and made.dtype == data.dtype and bool((made == data).all()):
                    self.packed[name] = recipe
        self.unknown = set(self._added) - set(self.packed)


def _memory(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _recipe(name: str, weight: Any, new_size: Any, padding: int) -> dict[str, Any]:
    return {
        "buffer": name,
        "shape": [int(size) for size in weight.shape],
        "strides": [int(stride) for stride in weight.stride()],
        "offset": int(weight.storage_offset()),
        "padding": int(padding),
        "blocks": [int(size) for size in new_size],
    }
