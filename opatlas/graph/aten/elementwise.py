"""Operators that work element by element: activations, arithmetic, comparisons, masks.

An in-place form (``relu_``) computes the same as its plain form and maps to the same operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from opatlas.graph.aten.builder import CannotMap, Ref, Scalar, broadcast, is_float, promoted
from opatlas.graph.aten.call import AtenRule, Call, rule


def _float_input(call: Call) -> Ref:
    """The argument; whole numbers become float32, as PyTorch's functions of real numbers have it."""
    x = call.tensor("self")
    return x if is_float(x.dtype) else call.cast(x, "float32")


def unary(op: str, **attrs: Any) -> Callable[[Call], Ref]:
    """A function of one tensor that keeps its dtype."""
    return lambda call: call.node(op, call.tensor("self"), **attrs)


def unary_float(op: str, **attrs: Any) -> Callable[[Call], Ref]:
    return lambda call: call.node(op, _float_input(call), **attrs)


def unary_test(op: str) -> Callable[[Call], Ref]:
    """A function of one tensor that gives truth values."""
    return lambda call: call.node(op, _float_input(call), dtype="bool")


def silu(call: Call) -> Ref:
    x = call.tensor("self")
    return call.node("Mul", x, call.node("Sigmoid", x))


def gelu(call: Call) -> Ref:
    return call.node("Gelu", call.tensor("self"), approximate=str(call.get("approximate")))


def leaky_relu(call: Call) -> Ref:
    return call.node("LeakyRelu", call.tensor("self"), alpha=float(call.number("negative_slope")))


def elu(call: Call) -> Ref:
    if call.number("scale") != 1 or call.number("input_scale") != 1:
        raise CannotMap("elu with scales")
    return call.node("Elu", call.tensor("self"), alpha=float(call.number("alpha")))


def softplus(call: Call) -> Ref:
    """PyTorch turns linear above ``threshold``; ONNX's Softplus is the same to rounding at the default 20."""
    if call.number("beta") != 1 or call.number("threshold") < 20:
        raise CannotMap("softplus with its own slope or threshold")
    return call.node("Softplus", call.tensor("self"))


def prelu(call: Call) -> Ref:
    x, weight = call.tensor("self"), call.tensor("weight")
    if x.rank > 2 and weight.shape[0] > 1:
        weight = call.reshaped(weight, (weight.shape[0],) + (1,) * (x.rank - 2))
    return call.node("PRelu", x, weight)


def clamp(call: Call, low: str = "min", high: str = "max") -> Ref:
    x = call.tensor("self")
    bounds = [None if call.arguments.get(name) is None else call.number(name) for name in (low, high)]
    dtype = promoted(x, *[bound for bound in bounds if bound is not None])
    return _clipped(call, call.cast(x, dtype), *bounds)


def _clipped(call: Call, x: Ref, *bounds: Scalar | None) -> Ref:
    return call.node("Clip", x, *[None if b is None else call.constant(b, x.dtype, ()) for b in bounds])


def _binary(
    call: Call, a: Ref | Scalar, b: Ref | Scalar, op: str, dtype: str, out: str | None = None, **attrs: Any
) -> Ref:
    left, right = call.constant_of(a, dtype), call.constant_of(b, dtype)
    shape = broadcast(left.shape, right.shape)
    return call.node(op, left, right, shape=shape, dtype=out or dtype, **attrs)


def arithmetic(op: str) -> Callable[[Call], Ref]:
    """a op (alpha·b), in PyTorch's result type."""

    def build(call: Call) -> Ref:
        a, b, alpha = call.operand("self"), call.operand("other"), call.arguments.get("alpha", 1)
        dtype = promoted(a, b)
        if alpha != 1:
            b = _binary(call, b, alpha, "Mul", dtype) if isinstance(b, Ref) else b * alpha
        return _binary(call, a, b, op, dtype)

    return build


def rsub(call: Call) -> Ref:
    a, b, alpha = call.operand("self"), call.operand("other"), call.arguments.get("alpha", 1)
    dtype = promoted(a, b)
    return _binary(call, b, a if alpha == 1 else _binary(call, a, alpha, "Mul", dtype), "Sub", dtype)


def divide(call: Call) -> Ref:
    a, b = call.operand("self"), call.operand("other")
    dtype = promoted(a, b)
    mode = call.arguments.get("rounding_mode")
    if mode == "floor":
        return floor_divide(call)
    if not is_float(dtype):
        dtype = "float32"
    out = _binary(call, a, b, "Div", dtype)
    if mode == "trunc":
        raise CannotMap("division rounded towards zero")
    return out


def floor_divide(call: Call) -> Ref:
    """⌊a ÷ b⌋; ONNX divides whole numbers towards zero, so take (a − (a mod b)) ÷ b there."""
    a, b = call.operand("self"), call.operand("other")
    dtype = promoted(a, b)
    if is_float(dtype):
        return call.node("Floor", _binary(call, a, b, "Div", dtype))
    left = call.constant_of(a, dtype)
    rest = _binary(call, left, b, "Mod", dtype)
    return _binary(call, _binary(call, left, rest, "Sub", dtype), b, "Div", dtype)


def remainder(call: Call) -> Ref:
    """The remainder with the divisor's sign; ONNX's Mod has it for whole numbers only."""
    a, b = call.operand("self"), call.operand("other")
    dtype = promoted(a, b)
    if not is_float(dtype):
        return _binary(call, a, b, "Mod", dtype)
    left = call.constant_of(a, dtype)
    whole = call.node("Floor", _binary(call, left, b, "Div", dtype))
    return _binary(call, left, _binary(call, whole, b, "Mul", dtype), "Sub", dtype)


def fmod(call: Call) -> Ref:
    a, b = call.operand("self"), call.operand("other")
    return _binary(call, a, b, "Mod", promoted(a, b), fmod=1)


def power(call: Call) -> Ref:
    """aᵇ; the exponents that PyTorch itself computes in other ways are written out as those."""
    a, b = call.operand("self"), call.operand("exponent")
    dtype = promoted(a, b)
    if not isinstance(a, Ref) or isinstance(b, Ref) or b not in (0.5, 1, 2, 3, -1):
        return _binary(call, a, b, "Pow", dtype)
    base = call.cast(a, dtype)
    if b in (0.5, -1):
        return call.node("Sqrt" if b == 0.5 else "Reciprocal", base)
    if b == 1:
        return call.node("Identity", base)
    squared = call.node("Mul", base, base)
    return squared if b == 2 else call.node("Mul", squared, base)


def comparison(op: str) -> Callable[[Call], Ref]:
    def build(call: Call) -> Ref:
        a, b = call.operand("self"), call.operand("other")
        dtype = promoted(a, b)
        if dtype == "bool" and op != "Equal":
            dtype = "int32"
        return _binary(call, a, b, op, dtype, "bool")

    return build


def logical(op: str) -> Callable[[Call], Ref]:
    return lambda call: _binary(call, call.operand("self"), call.operand("other"), op, "bool")


def bitwise(op: str, whole: str) -> Callable[[Call], Ref]:
    """And, Or or Xor: of truth values, or bit by bit of whole numbers."""

    def build(call: Call) -> Ref:
        a, b = call.operand("self"), call.operand("other")
        dtype = promoted(a, b)
        return _binary(call, a, b, op if dtype == "bool" else whole, dtype)

    return build


def invert(call: Call) -> Ref:
    x = call.tensor("self")
    return call.node("Not" if x.dtype == "bool" else "BitwiseNot", x)


def where(call: Call) -> Ref:
    a, b = call.operand("self"), call.operand("other")
    return _select(call, call.tensor("condition"), a, b, promoted(a, b))


def masked_fill(call: Call) -> Ref:
    x = call.tensor("self")
    return _select(call, call.tensor("mask"), call.operand("value"), x, x.dtype)


def _select(call: Call, condition: Ref, a: Ref | Scalar, b: Ref | Scalar, dtype: str) -> Ref:
    condition = call.cast(condition, "bool")
    left, right = call.constant_of(a, dtype), call.constant_of(b, dtype)
    shape = broadcast(condition.shape, left.shape, right.shape)
    return call.node("Where", condition, left, right, shape=shape, dtype=dtype)


def addc(op: str) -> Callable[[Call], Ref]:
    """self + value · (tensor1 op tensor2)."""

    def build(call: Call) -> Ref:
        x, a, b = call.tensor("self"), call.tensor("tensor1"), call.tensor("tensor2")
        dtype, value = promoted(x, a, b), call.number("value")
        out = _binary(call, a, b, op, dtype)
        if value != 1:
            out = _binary(call, out, value, "Mul", dtype)
        return _binary(call, x, out, "Add", dtype)

    return build


def _forms(
    parameters: str, builds: Mapping[str, Callable[[Call], Ref]], *overloads: str
) -> dict[str, AtenRule]:
    """Rules under their overloads, plain and in place."""
    return {
        f"{name}{mark}{'.' + overload if overload else ''}": rule(parameters, form)
        for name, build in builds.items()
        for overload in (overloads or ("",))
        for mark, form in (("", build), ("_", partial(_in_place, build)))
    }


def _in_place(build: Callable[[Call], Ref], call: Call) -> Ref:
    """The result as the tensor that is written to holds it: its dtype stays."""
    return call.cast(build(call), call.tensor("self").dtype)


_UNARY: dict[str, Callable[[Call], Ref]] = {
    "relu": unary("Relu"), "sigmoid": unary_float("Sigmoid"), "tanh": unary_float("Tanh"),
    "erf": unary_float("Erf"),
    "exp": unary_float("Exp"), "log": unary_float("Log"), "sqrt": unary_float("Sqrt"), "abs": unary("Abs"),
    "neg": unary("Neg"), "sign": unary("Sign"), "sgn": unary("Sign"), "floor": unary("Floor"),
    "ceil": unary("Ceil"),
    "round": unary("Round"), "sin": unary_float("Sin"), "cos": unary_float("Cos"), "tan": unary_float("Tan"),
    "asin": unary_float("Asin"), "acos": unary_float("Acos"), "atan": unary_float("Atan"),
    "sinh": unary_float("Sinh"),
    "cosh": unary_float("Cosh"), "reciprocal": unary_float("Reciprocal"), 
    "rsqrt": lambda call: call.node("Reciprocal", call.node("Sqrt", _float_input(call))),
    "square": lambda call: call.node("Mul", call.tensor("self"), call.tensor("self")),
    "silu": silu, "mish": unary("Mish"), "selu": unary("Selu"), "hardswish": unary("HardSwish"),
    "hardsigmoid": unary("HardSigmoid", alpha=1 / 6, beta=0.5), "bitwise_not": invert,
    "logical_not": lambda call: call.node("Not", call.cast(call.tensor("self"), "bool")),
    "isnan": unary_test("IsNaN"), "isinf": unary_test("IsInf"),
    "relu6": lambda call: _clipped(call, call.tensor("self"), 0.0, 6.0),
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[Call], Ref]] = {
    "eq": comparison("Equal"),
    "lt": comparison("Less"),
    "le": comparison("LessOrEqual"),
    "gt": comparison("Greater"),
    "ge": comparison("GreaterOrEqual"),
    "ne": lambda call: call.node("Not", comparison("Equal")(call)),
}

_ARITHMETIC: dict[str, Callable[[Call], Ref]] = {
    "mul": arithmetic("Mul"),
    "div": divide,
    "bitwise_and": bitwise("And", "BitwiseAnd"),
    "bitwise_or": bitwise("Or", "BitwiseOr"),
    "bitwise_xor": bitwise("Xor", "BitwiseXor"),
}
_TENSORS_ONLY: dict[str, Callable[[Call], Ref]] = {
    "maximum": arithmetic("Max"),
    "minimum": arithmetic("Min"),
    "logical_and": logical("And"),
    "logical_or": logical("Or"),
    "logical_xor": logical("Xor"),
}
_SELF_OTHER = "self, other"
_RSUB = rule("self, other, alpha=1", rsub)
_WHERE = rule("condition, self, other", where)

RULES: dict[str, AtenRule] = {
    **_forms("self", _UNARY),
    **_forms(_SELF_OTHER, _COMPARISONS | _ARITHMETIC, "Tensor", "Scalar"),
    **_forms(_SELF_OTHER, _TENSORS_ONLY),
    **_forms(
        "self, other, alpha=1", {"add": arithmetic("Add"), "sub": arithmetic("Sub")}, "Tensor", "Scalar"
    ),
    **_forms("self, other, rounding_mode", {"div": divide}, "Tensor_mode", "Scalar_mode"),
    **_forms(_SELF_OTHER, {"floor_divide": floor_divide}, "", "Scalar", "Tensor"),
    **_forms(_SELF_OTHER, {"remainder": remainder, "fmod": fmod}, "Scalar", "Tensor"),
    **_forms("self, exponent", {"pow": power}, "Tensor_Scalar", "Tensor_Tensor", "Scalar"),
    **_forms("self, min=None, max=None", {"clamp": clamp}),
    **_forms("self, min", {"clamp_min": clamp}),
    **_forms("self, max", {"clamp_max": clamp}),
    **_forms("self, min_val=-1, max_val=1", {"hardtanh": partial(clamp, low="min_val", high="max_val")}),
    **_forms("self, approximate='none'", {"gelu": gelu}),
    **_forms("self, negative_slope=0.01", {"leaky_relu": leaky_relu}),
    **_forms("self, alpha=1, scale=1, input_scale=1", {"elu": elu}),
    **_forms("self, mask, value", {"masked_fill": masked_fill}, "Scalar", "Tensor"),
    **_forms("self, tensor1, tensor2, value=1", {"addcmul": addc("Mul"), "addcdiv": addc("Div")}),
    "rsub.Scalar": _RSUB,
    "rsub.Tensor": _RSUB,
    "softplus": rule("self, beta=1, threshold=20", softplus),
    "prelu": rule("self, weight", prelu),
    "_prelu_kernel": rule(
        "self, weight", lambda call: call.node("PRelu", call.tensor("self"), call.tensor("weight"))
    ),
    "where.self": _WHERE,
    "where.ScalarOther": _WHERE,
    "where.ScalarSelf": _WHERE,
}
