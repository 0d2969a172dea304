"""From a canonical operator to a Halide pipeline over buffers of fixed shapes and strides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.identity.operator import Value
from opatlas.identity.strides import dense_strides
from tuning.routes.compiler.halide import (
    elementwise,
    movement,
    pooling,
    products,
    reductions,
    resize,
)
from tuning.routes.compiler.halide.simplify import simplified
from tuning.routes.compiler.halide.site import HalideSite, HalideTensor, Index, Pipeline
from tuning.routes.compiler.halide.table import (
    HALF_TYPES,
    MOVEMENT,
    POINTWISE,
    REDUCTIONS,
    SMOOTH,
    vector_bytes,
)


@dataclass(frozen=True)
class Operand:
    """One buffer of the compiled function. ``position`` in opatlas_run's tensors; ``shape`` and ``strides``
    in elements, in ONNX's order. ``order``: a constant is packed with its axes in this order."""

    position: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] | None = None


@dataclass
class Lowered:
    """A pipeline ready to be scheduled."""

    pipeline: Pipeline
    outputs: list[Any]  # hl.Func
    shapes: list[tuple[int, ...]]
    operands: dict[str, Operand]  # by parameter's name; outputs are out0, out1, …


_BUILDERS: dict[str, Callable[[HalideSite], list[HalideTensor]]] = {
    **dict.fromkeys(POINTWISE, elementwise.lower),
    **dict.fromkeys(MOVEMENT, movement.lower),
    **dict.fromkeys(REDUCTIONS, reductions.reduce_node),
    **dict.fromkeys(
        (*("GroupNormalization", "InstanceNormalization"), *("LayerNormalization", "RMSNormalization")),
        reductions.normalise,
    ),
    "AveragePool": pooling.pool,
    "BatchNormalization": reductions.batch_normalise,
    "Conv": products.conv,
    "ConvTranspose": products.conv_transpose,
    "Gemm": products.matmul,
    "GlobalAveragePool": pooling.global_pool,
    "GlobalMaxPool": pooling.global_pool,
    "LogSoftmax": reductions.softmax,
    "MatMul": products.matmul,
    "MaxPool": pooling.pool,
    "Resize": resize.resize,
    "Softmax": reductions.softmax,
}


def is_strict(operator: Operator, setting: Setting) -> bool:
    """Whether the graph is compiled by strict floating-point rules: see ``table.SMOOTH``."""
    return not SMOOTH.intersection(operator.op_types) and not setting.fast_math


def computed(operator: Operator) -> Operator:
    """The operator in the types that it is computed in: half types in float32, or, where they are only moved,
    as whole numbers of their width."""
    moved = MOVEMENT.union(("Identity",)).issuperset(operator.op_types) and "Pad" not in operator.op_types
    instead = dict.fromkeys(HALF_TYPES, "uint16" if moved else "float32")

    def wide(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(replace(value, dtype=instead.get(value.dtype, value.dtype)) for value in values)

    return replace(operator, inputs=wide(operator.inputs), produced=wide(operator.produced))


def in_memory(stored: str, computed: str) -> str:
    """The type of a buffer's elements, of a tensor stored in one type and computed in another."""
    if stored == "bool":
        return "uint8"
    return stored if computed == "float32" else computed


def lower(operator: Operator, target: Target, setting: Setting, layout: str) -> Lowered:
    """Every node as expressions and Funcs; raises RouteError where one cannot be said in Halide."""
    strict = is_strict(operator, setting)
    stored = simplified(operator)
    p = Pipeline(computed(stored), vector_bytes(target) // 4, setting.threads, strict, layout)
    return _Lowering(p, stored).run()


class _Lowering:
    """``stored`` is the operator with the types that its tensors have in memory."""

    def __init__(self, p: Pipeline, stored: Operator) -> None:
        self.p, self.hl, self.operator, self.stored = p, p.hl, p.operator, stored
        self.operands: dict[str, Operand] = {}
        self.parameters: dict[int, Any] = {}
        self.uses = Counter(number for node in self.operator.nodes for number in node.inputs)

    def run(self) -> Lowered:
        operator, p = self.operator, self.p
        tensors = {number: self._input(number) for number in operator.tensor_inputs}
        for node in operator.nodes:
            site = HalideSite(p, operator, node, tensors)
            made = iter(_BUILDERS[node.op](site))
            for number in node.outputs:
                if number >= 0:
                    tensors[number] = self._kept(number, next(made))
        outputs, shapes = [], []
        for place, number in enumerate(operator.outputs):
            value = operator.value(number)
            outputs.append(self._output(place, value, tensors[number]))
            shapes.append(value.shape or (1,))
        for number, parameter in self.parameters.items():
            self._fix(number, parameter)
        return Lowered(p, outputs, shapes, self.operands)

    def _kept(self, number: int, tensor: HalideTensor) -> HalideTensor:
        """What several nodes read is a Func, so that its expression is not written out again and again."""
        readers = self.uses[number] + (number in self.operator.outputs)
        return self.p.stored(tensor) if readers > 1 else tensor

    def _input(self, number: int) -> HalideTensor:
        value, hl = self.operator.inputs[number], self.hl
        lying = in_memory(self.stored.inputs[number].dtype, value.dtype)
        kind = self.p.type(lying)
        # A constant that will be cut into panels has an axis more.
        alone = self.uses[number] == 1 and value.role == "const"
        second = self.operator.nodes[0].inputs[1:2] == (number,)
        more = self.p.layout == products.PANELS and alone and second and len(value.shape) == 2
        rank = max(1, len(value.shape)) + more
        parameter = hl.ImageParam(kind, rank, f"in{number}")
        self.parameters[number] = parameter

        def at(index: Index) -> Any:
            order = self.p.packed.get(number)
            place = list(index)
            if number in self.p.panels:
                axis, width = self.p.panels[number]
                place[axis : axis + 1] = [place[axis] / width, place[axis] % width]
            if order is not None:
                place = [place[axis] for axis in order]
            found = parameter[list(reversed(place or [hl.Expr(0)]))]
            if value.dtype == "bool":
                return found != hl.cast(hl.UInt(8), hl.Expr(0))
            return found if lying == value.dtype else hl.cast(self.p.type(value.dtype), found)

        own, widened = number if alone else -1, lying in HALF_TYPES
        return HalideTensor(value.shape, value.dtype, at, cheap=True, number=own, widened=widened)

    def _output(self, place: int, value: Value, tensor: HalideTensor) -> Any:
        hl = self.hl
        shape = value.shape or (1,)
        func, variables = hl.Func(f"out{place}"), self.p.variables(len(shape))
        indices = [hl.Expr(variable) for variable in variables]
        found = tensor.at(indices if value.shape else [])
        lying = in_memory(self.stored.value(self.stored.outputs[place]).dtype, value.dtype)
        func[list(reversed(variables))] = hl.cast(self.p.type(lying), found)
        strides = dense_strides(shape)
        buffer = func.output_buffer()
        for axis, extent in enumerate(shape):
            dimension = buffer.dim(len(shape) - 1 - axis)
            dimension.set_bounds(0, extent)
            dimension.set_stride(strides[axis])
            func.set_estimate(variables[axis], 0, extent)
        position = len(self.operator.tensor_inputs) + place
        self.operands[f"out{place}"] = Operand(position, shape, strides, lying)
        return func

    def _fix(self, number: int, parameter: Any) -> None:
        """Tell the parameter its shape and strides."""
        value, order = self.operator.inputs[number], self.p.packed.get(number)
        shape, strides = value.shape or (1,), value.strides or dense_strides(value.shape) or (1,)
        if number in self.p.panels:
            axis, width = self.p.panels[number]
            shape = (*shape[:axis], shape[axis] // width, width, *shape[axis + 1 :])
            strides = (*strides[:axis], strides[axis] * width, strides[axis], *strides[axis + 1 :])
        if order is not None:
            seen = tuple(shape[axis] for axis in order)
            lying = dense_strides(seen)
        else:
            seen, lying = shape, strides
        for axis, extent in enumerate(seen):
            dimension = parameter.dim(len(seen) - 1 - axis)
            dimension.set_bounds(0, extent)
            dimension.set_stride(lying[axis])
            dimension.set_estimate(0, extent)
        position = self.operator.tensor_inputs.index(number)
        lies = in_memory(self.stored.inputs[number].dtype, value.dtype)
        self.operands[f"in{number}"] = Operand(position, shape, strides, lies, order)
