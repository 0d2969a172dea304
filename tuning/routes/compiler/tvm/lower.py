"""From a canonical operator to TVM's PrimFuncs and the steps that call them.

ONNX → Relax → LegalizeOps, FuseOps, FuseTIR. What is left of the Relax function is straight-line code; it
becomes a :class:`WrapperPlan`: which function runs when, on which buffers. Steps that read constants only
move to the plan's ``prepare`` part, so that they run once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

from opatlas.identity import Operator, Setting, to_onnx
from opatlas.identity.dtypes import item_bytes
from tuning.routes.base import RouteError
from tuning.routes.compiler.tvm.lean import ir, relax, tvm
from tuning.routes.compiler.tvm.stored import fuse_reads, read_stored
from tuning.routes.compiler.tvm.table import ALIGNMENT, HALF_TYPES, POINTWISE

Where = Literal["tensor", "scratch", "state", "literal"]


@dataclass(frozen=True)
class Buffer:
    """A dense, row-major tensor. ``index`` is the position in ``opatlas_run``'s tensors (``tensor``) or
    in the plan's literals (``literal``), or the offset in bytes (``scratch``, ``state``)."""

    where: Where
    index: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        return prod(self.shape) * item_bytes(self.dtype)


@dataclass(frozen=True)
class WrapperStep:
    """One call of a compiled function; with an empty name a copy from the first buffer to the second."""

    function: str
    buffers: tuple[Buffer, ...]


@dataclass
class WrapperPlan:
    """All that the wrapper has to do, in order."""

    functions: dict[str, Any] = field(default_factory=dict)  # symbol → tvm PrimFunc
    prepare: list[WrapperStep] = field(default_factory=list)
    run: list[WrapperStep] = field(default_factory=list)
    literals: list[bytes] = field(default_factory=list)
    scratch_bytes: int = 0
    state_bytes: int = 0


def to_module(operator: Operator, setting: Setting, target: Any) -> Any:
    """The operator as an IRModule: PrimFuncs and a Relax ``main`` that calls them; raises RouteError."""
    from tvm.relax.frontend.onnx import from_onnx

    module = from_onnx(_widened(_flattened(to_onnx(operator), operator), setting))
    module = read_stored(module, operator)
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    with target:
        module = fuse_reads(tvm.transform.Sequential(passes)(module), operator)
    return _mark_layout_free(module, operator)


def _flattened(model: Any, operator: Operator) -> Any:
    """Declare what an elementwise operator reads and writes as one-dimensional, if all of it is dense and has
    one shape (or one element), and a batch normalisation's images as lines: TVM cannot simplify a vector's
    index across the rows of 56×56."""
    if any(value.strides is not None for value in operator.inputs):
        return model
    if operator.op_types == ("BatchNormalization",):
        for value in [model.graph.input[0], *model.graph.output[:1]]:
            _reshape(value, [*operator.inputs[0].shape[:2], prod(operator.inputs[0].shape[2:])])
        return model
    values = [*operator.inputs, *operator.produced]
    sizes = {prod(value.shape) for value in values}
    shapes = {value.shape for value in values if prod(value.shape) > 1}
    if not POINTWISE.issuperset(operator.op_types) or len(shapes) != 1 or len(sizes - {1}) != 1:
        return model
    for value in [*model.graph.input, *model.graph.output]:
        _reshape(value, [prod(dimension.dim_value for dimension in value.type.tensor_type.shape.dim)])
    del model.graph.value_info[:]
    return model


def _reshape(value: Any, shape: list[int]) -> None:
    """Give an ONNX ValueInfo another shape."""
    dimensions = value.type.tensor_type.shape
    del dimensions.dim[:]
    for extent in shape:
        dimensions.dim.add().dim_value = extent


def _widened(model: Any, setting: Setting) -> Any:
    """Compute 16-bit floats in float32 between casts: TVM would add up in the narrow type itself."""
    from onnx import TensorProto, helper

    half = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
    graph = model.graph
    if setting.accumulate in HALF_TYPES or not any(
        value.type.tensor_type.elem_type in half for value in [*graph.input, *graph.output]
    ):
        return model
    before, after, renamed = [], [], {}
    for value in graph.input:
        if value.type.tensor_type.elem_type in half:
            renamed[value.name] = f"{value.name}_wide"
            before.append(
                helper.make_node("Cast", [value.name], [f"{value.name}_wide"], to=TensorProto.FLOAT)
            )
    for value in graph.output:
        if value.type.tensor_type.elem_type in half:
            renamed[value.name] = f"{value.name}_wide"
            kind = value.type.tensor_type.elem_type
            after.append(helper.make_node("Cast", [f"{value.name}_wide"], [value.name], to=kind))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in half:
                attribute.i = TensorProto.FLOAT
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    middle = list(graph.node)
    del graph.node[:]
    graph.node.extend([*before, *middle, *after])
    del graph.value_info[:]
    return model


def _mark_layout_free(module: Any, operator: Operator) -> Any:
    """Say of every PrimFunc which arguments come from constants: their layout is the schedule's choice."""
    free: dict[str, set[int]] = {}
    constant = _constant_vars(module["main"], operator)
    for binding in bindings_of(module["main"]):
        call = binding.value
        if not is_call_tir(call):
            continue
        name = call.args[0].name_hint
        here = {
            i
            for i, argument in enumerate(call.args[1].fields)
            if isinstance(argument, ir.Var) and argument in constant
        }
        free[name] = free[name] & here if name in free else here
    for name, indices in free.items():
        var = module.get_global_var(name)
        module.update_func(var, module[var].with_attr("layout_free_buffers", sorted(indices)))
    return module


def _constant_vars(main: Any, operator: Operator) -> set[Any]:
    """The Relax variables whose values depend on the operator's constant inputs (and literals) only."""
    constants = {f"in{i}" for i in operator.constant_inputs}
    known = {var for var in main.params if var.name in constants}
    for binding in bindings_of(main):
        used = [argument for argument in leaves(binding.value) if isinstance(argument, ir.Var)]
        if used and all(var in known for var in used):
            known.add(binding.var)
    return known


def bindings_of(main: Any) -> list[Any]:
    """Every binding of a straight-line Relax function, in order; raises RouteError on control flow."""
    if not isinstance(main.body, relax.SeqExpr):
        return []
    return [binding for block in main.body.blocks for binding in block.bindings]


def is_call_tir(value: Any) -> bool:
    return isinstance(value, ir.Call) and getattr(value.op, "name", "") == "relax.call_tir"


def leaves(value: Any) -> list[Any]:
    """The variables and constants that a bound value reads."""
    if isinstance(value, ir.Tuple):
        return [leaf for item in value.fields for leaf in leaves(item)]
    if isinstance(value, ir.TupleGetItem):
        return leaves(value.tuple_value)
    if is_call_tir(value):
        return leaves(value.args[1])
    return [value]


def to_plan(module: Any, operator: Operator) -> WrapperPlan:
    """Place every value of the scheduled module's ``main`` in memory and list its calls."""
    return _Planner(module, operator).plan()


class _Planner:
    """Walks the bindings of ``main`` once; variables map to a Buffer, or a list of them for tuples."""

    def __init__(self, module: Any, operator: Operator) -> None:
        self.module, self.operator = module, operator
        self.main = module["main"]
        self.plan_ = WrapperPlan()
        self.constant = _constant_vars(self.main, operator)
        self.values: dict[Any, Buffer | list[Buffer]] = {}
        self.symbols: dict[str, str] = {}
        self.outputs: dict[Any, list[Buffer]] = {}

    def plan(self) -> WrapperPlan:
        position = {f"in{number}": i for i, number in enumerate(self.operator.tensor_inputs)}
        for var in self.main.params:
            if var.name not in position:
                raise RouteError(f"TVM's function takes {var.name}, which is no tensor input")
            self.values[var] = _buffer("tensor", position[var.name], var.ty)
        wanted = self._wanted_outputs()
        for binding in bindings_of(self.main):
            self._bind(binding, wanted)
        for result, target in self._results():
            source = self._one(result)
            if (source.where, source.index) != (target.where, target.index):
                self.plan_.run.append(WrapperStep("", (source, target)))
        return self.plan_

    def _results(self) -> list[tuple[Any, Buffer]]:
        """Each result expression of ``main`` with the output tensor it has to land in."""
        body = self.main.body.body if isinstance(self.main.body, relax.SeqExpr) else self.main.body
        body = self._definition(body)
        results = list(body.fields) if isinstance(body, ir.Tuple) else [body]
        values = self.operator.output_values
        if len(results) != len(values):
            raise RouteError(f"TVM returns {len(results)} results where the operator has {len(values)}")
        first = len(self.operator.tensor_inputs)
        return [
            (result, Buffer("tensor", first + i, value.shape, value.dtype))
            for i, (result, value) in enumerate(zip(results, values, strict=True))
        ]

    def _definition(self, value: Any) -> Any:
        """What a variable stands for, through plain renamings and tuples."""
        bound = {binding.var: binding.value for binding in bindings_of(self.main)}
        while isinstance(value, ir.Var) and isinstance(bound.get(value), ir.Var | ir.Tuple):
            value = bound[value]
        return value

    def _wanted_outputs(self) -> dict[Any, Buffer]:
        """Variables that can be computed straight into an output tensor."""
        wanted: dict[Any, Buffer] = {}
        for result, target in self._results():
            result = self._definition(result)
            if isinstance(result, ir.Var) and result not in wanted:
                wanted[result] = target
        return wanted

    def _bind(self, binding: Any, wanted: Mapping[Any, Buffer]) -> None:
        var, value = binding.var, binding.value
        if isinstance(value, ir.TupleGetItem):
            self.values[var] = self._many(value.tuple_value)[value.index]
        elif isinstance(value, ir.Tuple):
            self.values[var] = [self._one(item) for item in value.fields]
        elif isinstance(value, ir.Var | ir.GenericConst):
            self.values[var] = self.values[value] if value in self.values else self._one(value)
        elif is_call_tir(value):
            self.values[var] = self._call(var, value, wanted)
        else:
            what = getattr(getattr(value, "op", None), "name", type(value).__name__)
            raise RouteError(f"TVM leaves {what} to its own runtime, which an artifact does not bring along")

    def _call(self, var: Any, call: Any, wanted: Mapping[Any, Buffer]) -> Buffer | list[Buffer]:
        name = call.args[0].name_hint
        arguments = [self._one(item) for item in call.args[1].fields]
        if len(call.args) > 2:
            raise RouteError(f"TVM's {name} takes symbolic sizes")
        function, result = self.module[name], call.ty_args[0]
        constant = var in self.constant
        if not isinstance(result, ir.TupleType) and _is_view(function, arguments):
            made = _buffer("scratch", 0, result)
            return replace(arguments[0], shape=made.shape, dtype=made.dtype)
        items = list(result.fields) if isinstance(result, ir.TupleType) else [result]
        made_all = [self._place(item, constant) for item in items]
        if len(items) == 1 and not isinstance(result, ir.TupleType) and var in wanted and not constant:
            made_all = [replace(wanted[var], shape=made_all[0].shape)]
        elif isinstance(result, ir.TupleType):
            made_all = self._place_tuple(var, made_all, wanted, constant)
        step = WrapperStep(self._symbol(name), (*arguments, *made_all))
        (self.plan_.prepare if constant else self.plan_.run).append(step)
        return made_all if isinstance(result, ir.TupleType) else made_all[0]

    def _place_tuple(
        self, var: Any, made: list[Buffer], wanted: Mapping[Any, Buffer], constant: bool
    ) -> list[Buffer]:
        """Let the fields of a tuple that are results land in the output tensors."""
        if constant:
            return made
        placed = list(made)
        for binding in bindings_of(self.main):
            item = binding.value
            if isinstance(item, ir.TupleGetItem) and item.tuple_value.same_as(var) and binding.var in wanted:
                placed[item.index] = replace(wanted[binding.var], shape=made[item.index].shape)
        return placed

    def _place(self, ty: Any, constant: bool) -> Buffer:
        """A fresh buffer: in the kernel's state if it holds something made of constants, else scratch."""
        if constant:
            buffer = _buffer("state", self.plan_.state_bytes, ty)
            self.plan_.state_bytes += _rounded(buffer.bytes)
        else:
            buffer = _buffer("scratch", self.plan_.scratch_bytes, ty)
            self.plan_.scratch_bytes += _rounded(buffer.bytes)
        return buffer

    def _symbol(self, name: str) -> str:
        if name not in self.symbols:
            self.symbols[name] = f"k{len(self.symbols)}"
            self.plan_.functions[self.symbols[name]] = self.module[name]
        return self.symbols[name]

    def _one(self, value: Any) -> Buffer:
        if isinstance(value, ir.GenericConst):
            array = value.value.numpy()
            self.plan_.literals.append(array.tobytes())
            return _buffer("literal", len(self.plan_.literals) - 1, value.ty)
        if isinstance(value, ir.TupleGetItem):
            return self._many(value.tuple_value)[value.index]
        found = self.values.get(value)
        if not isinstance(found, Buffer):
            raise RouteError(f"TVM's function reads {value}, which is no tensor")
        return found

    def _many(self, value: Any) -> list[Buffer]:
        if isinstance(value, ir.Tuple):
            return [self._one(item) for item in value.fields]
        found = self.values.get(value)
        if not isinstance(found, list):
            raise RouteError(f"TVM's function reads {value}, which is no tuple")
        return found


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _buffer(where: Where, index: int, ty: Any) -> Buffer:
    """A buffer of a Relax tensor type; raises RouteError where its shape is not known."""
    try:
        shape = tuple(int(extent) for extent in ty.shape.values)
    except (AttributeError, TypeError) as error:
        raise RouteError(f"TVM cannot tell the shape of {ty}") from error
    return Buffer(where, index, shape, str(ty.dtype))


def _is_view(function: Any, arguments: list[Buffer]) -> bool:
    """Whether a function only gives its one input another shape."""
    from tvm.relax.analysis import has_reshape_pattern

    return len(arguments) == 1 and bool(has_reshape_pattern(function))
