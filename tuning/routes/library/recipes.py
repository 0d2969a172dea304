"""What every library route shares: a candidate is a recipe, and building it is writing its manifest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from opatlas.load.allocator import LARGE_BYTES
from opatlas.load.dtypes import numpy_dtype
from opatlas.load.needs import installed_version
from opatlas.load.torch.graph import missing
from tuning.routes.base import (
    Answer,
    Budget,
    BuiltArtifact,
    Candidate,
    Method,
    No,
    RouteError,
    Yes,
    foreign_kind,
)

Recipe = Mapping[str, Any]

SINGLE_THREAD_ELEMENTS = 1 << 18
"""Above this many elements touched (some 30 µs of memory traffic) one thread cannot beat several: waking
them costs a few microseconds."""

SINGLE_THREAD_PRODUCTS = 1 << 21
"""The same for multiply-adds of convolutions and matrix products (some 30 µs on one core)."""


MOST_VARIANTS = 8
"""Candidates of one route for one operator: each takes a contest some half a second."""

TORCH_GRAIN = 32768
"""Elements below which PyTorch's own loops run on one thread whatever they are told (its GRAIN_SIZE)."""


class RecipeRoute:
    """A route whose artifacts are recipes. A library's file says its name, its limits and its variants."""

    name: str
    method: Method = "library"
    kinds: tuple[str, ...] = ("cpu",)
    zygote = "library"
    preload: tuple[str, ...] = ()
    builds_in_process = True
    distributions: tuple[str, ...] = ()
    exact = 1  # of these, the first so many: those that a recipe needs in their very version

    def versions(self) -> Mapping[str, str]:
        found = {name: installed_version(name) for name in self.distributions}
        return {name: version for name, version in found.items() if version is not None}

    def available(self, target: Target) -> Answer:
        if reason := foreign_kind(self.name, self.kinds, target):
            return No(reason)
        absent = sorted(set(self.distributions) - set(self.versions()))
        return No(f"{', '.join(absent)} is not installed") if absent else Yes()

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        raise NotImplementedError

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        """Recipes and their labels, the most promising first; ``threads`` is added by :meth:`candidates`."""
        raise NotImplementedError

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        if not self.supports(operator, setting):
            return
        variants = list(self.variants(operator, setting))
        if "torch" in self.distributions and has_large(operator):
            variants = list(from_heap(variants))
        made = [Candidate(self.name, recipe, label) for recipe, label in variants[:MOST_VARIANTS]]
        if setting.threads > 1 and is_small(operator) and not self.serial(operator):
            made += [
                Candidate(self.name, {**recipe, "threads": 1}, f"{label}, one thread")
                for recipe, label in variants[: MOST_VARIANTS - len(made)]
            ]
        yield from made[: budget.candidates]

    def serial(self, operator: Operator) -> bool:
        """Whether the library runs the operator on one thread whatever it is told."""
        return "torch" in self.distributions and is_serial(operator)

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        needed = self.distributions[: self.exact]
        found = self.versions()
        if absent := [name for name in needed if name not in found]:
            raise RouteError(f"{', '.join(absent)} is not installed")
        manifest = Manifest(
            kind="recipe",
            route=self.name,
            operator=operator.to_json(),
            setting=setting.to_json(),
            # The label (+cpu) is the wheel's, not the library's: the same version does the same call.
            needs={name: found[name].partition("+")[0] for name in needed},
            recipe=dict(candidate.parameters),
        )
        return BuiltArtifact(manifest, workdir, facts={"versions": dict(self.versions())})


def is_small(operator: Operator) -> bool:
    """Whether one thread has a chance against several (a bound on size, not a prediction)."""
    elements = sum(math.prod(value.shape) for value in (*operator.inputs, *operator.produced))
    return elements <= SINGLE_THREAD_ELEMENTS and _products(operator) <= SINGLE_THREAD_PRODUCTS


def is_serial(operator: Operator) -> bool:
    """Whether PyTorch runs the operator on one thread anyway: small, and nothing that a library does."""
    largest = max(math.prod(value.shape) for value in (*operator.inputs, *operator.produced))
    library = {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "Attention"}
    return largest < TORCH_GRAIN and not library & set(operator.op_types)


def has_large(operator: Operator) -> bool:
    """Whether any tensor is so large that the system maps it anew whenever it is allocated."""
    return any(
        math.prod(value.shape) * numpy_dtype(value.dtype).itemsize > LARGE_BYTES
        for value in (*operator.inputs, *operator.produced)
    )


def from_heap(variants: Iterable[tuple[Recipe, str]]) -> Iterator[tuple[Recipe, str]]:
    """Variants whose large tensors come from the heap; the plain call stays what users have, too."""
    plain = {"library": "torch", "call": "eager"}
    for recipe, label in variants:
        if recipe == plain or recipe.get("buffers") == "kept":
            yield recipe, label
        if recipe.get("buffers") != "kept":
            yield {**recipe, "memory": "heap"}, f"{label}, large tensors from the heap"


def _products(operator: Operator) -> int:
    """Multiply-adds of the convolutions and matrix products."""
    total = 0
    for node in operator.nodes:
        output = math.prod(operator.value(node.outputs[0]).shape)
        if node.op in ("MatMul", "Gemm"):
            first = operator.value(node.inputs[0]).shape
            total += output * first[0 if node.attributes.get("transA") else -1]
        elif node.op == "Conv":
            total += output * math.prod(operator.value(node.inputs[1]).shape[1:])
        elif node.op == "ConvTranspose":
            weights = operator.value(node.inputs[1]).shape
            total += math.prod(operator.value(node.inputs[0]).shape) * math.prod(weights[1:])
    return total


class PyTorchVariants(RecipeRoute):
    """A library inside PyTorch, where it is called otherwise than eager calls it."""

    library: str  # as people write it
    distributions: tuple[str, ...] = ("torch",)
    preload: tuple[str, ...] = ("torch",)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if reason := missing(operator):
            return No(reason)
        if not any(True for _ in self.variants(operator, setting)):
            return No(f"no call of {self.library} differs from PyTorch eager for this operator")
        return Yes()
