"""What the lowering of one node reads and makes: tensors as functions of indices, in Halide's expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from opatlas.identity import Operator
from opatlas.identity.operator import Node
from opatlas.load.torch.ops.site import TorchSite
from tuning.routes.base import RouteError
from tuning.routes.compiler.halide.machine import import_halide

Index = Sequence[Any]


@dataclass(frozen=True)
class HalideTensor:
    """``at`` gives the element at indices in ONNX's order of axes. ``cheap``: reading one is a load, not a
    computation that should be kept. ``stride`` is that of the innermost axis in memory (0: unknown)."""

    shape: tuple[int, ...]
    dtype: str
    at: Callable[[Index], Any]
    cheap: bool = False
    number: int = -1  # the operator's input that it is, if it is one
    widened: bool = False  # whether reading one makes it another type


@dataclass
class MadeFunc:
    """A Func of the pipeline, with what a schedule has to know of it. ``shape`` and ``variables`` are in
    ONNX's order, outermost first. ``kept``: for a reduction, the axes of its input that it keeps."""

    func: Any
    shape: tuple[int, ...]
    variables: list[Any]
    role: str = "value"  # value; first (computed whole, first); product; dots, dot; partial, total
    kept: tuple[int, ...] = ()
    reduced: tuple[int, ...] = ()  # extents of the update's reduction domain, outermost first


@dataclass
class Pipeline:
    """What the lowering of an operator collects."""

    operator: Operator
    lanes: int  # float32 elements of a vector
    threads: int
    strict: bool
    layout: str  # of products: see products.py
    funcs: list[MadeFunc] = field(default_factory=list)
    packed: dict[int, tuple[int, ...]] = field(default_factory=dict)  # constant input → order of its axes
    panels: dict[int, tuple[int, int]] = field(default_factory=dict)  # … → (axis cut first, width of a piece)

    @cached_property
    def hl(self) -> Any:
        return import_halide()

    def type(self, dtype: str) -> Any:
        """Halide's type of a tensor's elements in computation."""
        hl = self.hl
        if dtype == "bool":
            return hl.Bool()
        bits = int(dtype.lstrip("ubintfloa"))
        return {"i": hl.Int, "u": hl.UInt, "f": hl.Float, "b": hl.BFloat}[dtype[0]](bits)

    def constant(self, value: float | int | bool, dtype: str) -> Any:
        return constant(self.type(dtype), value)

    def variables(self, rank: int, prefix: str = "d") -> list[Any]:
        return [self.hl.Var(f"{prefix}{axis}") for axis in range(rank)]

    def function(
        self, name: str, shape: Sequence[int], dtype: str, body: Callable[[list[Any]], Any], **about: Any
    ) -> HalideTensor:
        """A Func of these elements; the autoscheduler decides whether it is stored."""
        name = f"{name}_{len(self.funcs)}"
        func, variables = self.hl.Func(name), self.variables(len(shape))
        func[list(reversed(variables))] = body([self.hl.Expr(variable) for variable in variables])
        self.funcs.append(MadeFunc(func, tuple(shape), variables, **about))
        return HalideTensor(tuple(shape), dtype, reader(func), cheap=True)

    def accumulate(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        first: Any,
        updates: Sequence[tuple[Sequence[int], Callable[[Any, list[Any], list[Any]], Any]]],
        **about: Any,
    ) -> HalideTensor:
        """A Func that begins at ``first`` and is updated over reduction domains. An update is the domain's
        extents (outermost first) and ``combine(so far, indices, reduction indices)``."""
        hl = self.hl
        func, variables = hl.Func(f"{name}_{len(self.funcs)}"), self.variables(len(shape))
        func[list(reversed(variables))] = first
        indices = [hl.Expr(variable) for variable in variables]
        reached = list(reversed(indices))
        for extents, combine in updates:
            domain = hl.RDom([(0, extent) for extent in reversed(extents)])
            steps = [hl.Expr(domain[axis]) for axis in reversed(range(len(extents)))]
            func[reached] = combine(hl.Expr(func[reached]), indices, steps)
        extents = tuple(updates[0][0]) if updates else ()
        self.funcs.append(MadeFunc(func, tuple(shape), variables, reduced=extents, **about))
        return HalideTensor(tuple(shape), dtype, reader(func), cheap=True)

    def stored(self, tensor: HalideTensor, name: str = "value", *, wide: bool = False) -> HalideTensor:
        """The tensor as a Func, so that what is read many times can be computed once; with ``wide`` also what
        is only widened: a product reads each element as often as it has rows or columns."""
        if tensor.cheap and not (wide and tensor.widened):
            return tensor
        return self.function(name, tensor.shape, tensor.dtype, tensor.at)


def constant(kind: Any, value: float | int | bool) -> Any:
    """The number as an expression of Halide's type ``kind``, without a detour by float32."""
    hl = import_halide()
    if kind.is_float():
        return hl.f64(float(value)) if kind.bits() == 64 else hl.f32(float(value))
    return hl.cast(kind, hl.Expr(int(value)))


def reader(func: Any) -> Callable[[Index], Any]:
    hl = import_halide()
    return lambda indices: hl.Expr(func[list(reversed(list(indices)))])


class HalideSite(TorchSite):
    """One node where it stands, with the tensors that its inputs are."""

    def __init__(
        self, pipeline: Pipeline, operator: Operator, node: Node, tensors: dict[int, HalideTensor]
    ) -> None:
        super().__init__(operator, node, {})
        self.p, self.hl = pipeline, pipeline.hl
        self._tensors = tensors

    def tensor(self, position: int) -> HalideTensor:
        """The node's input at ``position``; a number that is known is a constant."""
        number = self.node.inputs[position]
        if number in self._tensors:
            return self._tensors[number]
        value = self.operator.value(number)
        if value.data is None or len(value.data) != 1:
            raise RouteError(f"{self.node.op} with a table of written-out numbers is not lowered to Halide")
        only = self.p.constant(value.data[0], value.dtype)  # type: ignore[arg-type]
        return HalideTensor(value.shape, value.dtype, lambda _: only, cheap=True)

    def axes(self) -> list[int]:
        """What a reduction folds: an operator over fewer axes (``simplify.py``) says it by an attribute."""
        return list(self.attrs["axes"]) if "axes" in self.attrs else super().axes()


def broadcast(tensor: HalideTensor, rank: int) -> Callable[[Index], Any]:
    """The tensor's element for the indices of a result of ``rank`` axes, by NumPy's rules."""
    skip = rank - len(tensor.shape)
    zeros = [extent == 1 for extent in tensor.shape]

    def at(indices: Index) -> Any:
        return tensor.at([0 if zero else i for zero, i in zip(zeros, indices[skip:], strict=True)])

    return at
