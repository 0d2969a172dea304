"""Operators that work element by element: activations, arithmetic, comparisons, masks.

An in-place form (``relu_``) computes the same as its plain form and maps to the same operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tuning.graph.aten.builder import CannotMap, Ref, Scalar, broadcast, is_float, promoted
from tuning.graph.aten.call import AtenRule, Call, rule


def _float_input(call: Call, name: str = "self") -> Ref:
    """The argument; whole numbers become float32, as PyTorch's functions of real numbers have it."""
    x = call.tensor(name)
    return x if is_float(x.dtype) else call.graph.cast(x, "float32")


def unary(op: str, **attrs: Any) -> Callable[[Call], Ref]:
    """A function of one tensor that keeps its dtype."""
    return lambda call: call.graph.node(op, call.tensor("self"), **attrs)


def unary_float(op: str, **attrs: Any) -> Callable[[Call], Ref]:
    return lambda call: call.graph.node(op, _float_input(call), **attrs)


def unary_test(op: str) -> Callable[[Call], Ref]:
    """A function of one tensor that gives truth values."""
    return lambda call: call.graph.node(op, _float_input(call), dtype="bool")


def rsqrt(call: Call) -> Ref:
    return call.graph.node("Reciprocal", call.graph.node("Sqrt", _float_input(call)))


def square(call: Call) -> Ref:
    return call.graph.node("Mul", call.tensor("self"), call.tensor("self"))


def silu(call: Call) -> Ref:
    x = call.tensor("self")
    return call.graph.node("Mul", x, call.graph.node("Sigmoid", x))


def gelu(call: Call) -> Ref:
    return call.graph.node("Gelu", call.tensor("self"), approximate=str(call.get("approximate")))


def leaky_relu(call: Call) -> Ref:
    return call.graph.node("LeakyRelu", call.tensor("self"), alpha=float(call.number("negative_slope")))


def elu(call: Call) -> Ref:
    if call.number("scale") != 1 or call.number("input_scale") != 1:
        raise CannotMap("elu with scales")
    return call.graph.node("Elu", call.tensor("self"), alpha=float(call.number("alpha")))


def softplus(call: Call) -> Ref:
    """PyTorch turns linear above ``threshold``; ONNX's Softplus is the same to rounding at the default 20."""
    if call.number("beta") != 1 or call.number("threshold") < 20:
        raise CannotMap("softplus with its own slope or threshold")
    return call.graph.node("Softplus", call.tensor("self"))


def prelu(call: Call) -> Ref:
    x, weight = call.tensor("self"), call.tensor("weight")
    if len(x.shape) > 2 and weight.shape[0] > 1:
        shape = (weight.shape[0],) + (1,) * (len(x.shape) - 2)
        weight = call.graph.node("Reshape", weight, call.graph.constant(list(shape)), shape=shape)
    return call.graph.node("PRelu", x, weight)


def clamp(call: Call, low: str = "min", high: str = "max") -> Ref:
    x = call.tensor("self")
    bounds = [None if call.arguments.get(name) is None else call.number(name) for name in (low, high)]
    dtype = promoted(x, *[bound for bound in bounds if bound is not None])
    x = call.graph.cast(x, dtype)
    limits = [None if bound is None else call.graph.constant(bound, dtype, ()) for bound in bounds]
    return call.graph.node("Clip", x, *limits)


def _binary(
    call: Call, a: Ref | Scalar, b: Ref | Scalar, op: str, dtype: str, out: str | None = None, **attrs: Any
) -> Ref:
    left, right = call.constant_of(a, dtype), call.constant_of(b, dtype)
    shape = broadcast(left.shape, right.shape)
    return call.graph.node(op, left, right, shape=shape, dtype=out or dtype, **attrs)


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
        return call.graph.node("Floor", _binary(call, a, b, "Div", dtype))
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
    whole = call.graph.node("Floor", _binary(call, left, b, "Div", dtype))
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
    base = call.graph.cast(a, dtype)
    if b in (0.5, -1):
        return call.graph.node("Sqrt" if b == 0.5 else "Reciprocal", base)
    if b == 1:
        return call.graph.node("Identity", base)
    squared = call.graph.node("Mul", base, base)
    return squared if b == 2 else call.graph.node("Mul", squared, base)


def comparison(op: str) -> Callable[[Call], Ref]:
    def build(call: Call) -> Ref:
        a, b = call.operand("self"), call.operand("other")
        dtype = promoted(a, b)
        if dtype == "bool" and op != "Equal":
            dtype = "int32"
        return _binary(call, a, b, op, dtype, "bool")

    return build


def not_equal(call: Call) -> Ref:
    return call.graph.node("Not", comparison("Equal")(call))


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
    return call.graph.node("Not" if x.dtype == "bool" else "BitwiseNot", x)


def logical_not(call: Call) -> Ref:
    return call.graph.node("Not", call.graph.cast(call.tensor("self"), "bool"))


def where(call: Call) -> Ref:
    a, b = call.operand("self"), call.operand("other")
    return _select(call, call.tensor("condition"), a, b, promoted(a, b))


def masked_fill(call: Call) -> Ref:
    x = call.tensor("self")
    return _select(call, call.tensor("mask"), call.operand("value"), x, x.dtype)


def _select(call: Call, condition: Ref, a: Ref | Scalar, b: Ref | Scalar, dtype: str) -> Ref:
    condition = call.graph.cast(condition, "bool")
    left, right = call.constant_of(a, dtype), call.constant_of(b, dtype)
    shape = broadcast(condition.shape, left.shape, right.shape)
    return call.graph.node("Where", condition, left, right, shape=shape, dtype=dtype)


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


def _forms(name: str, made: AtenRule, *overloads: str) -> dict[str, AtenRule]:
    """A rule under its overloads, plain and in place."""
    in_place = AtenRule(made.parameters, lambda call: _kept(call, made.build(call)))
    return {
        f"{name}{mark}{'.' + overload if overload else ''}": form
        for overload in (overloads or ("",))
        for mark, form in (("", made), ("_", in_place))
    }


def _kept(call: Call, out: Ref | Sequence[Ref]) -> Ref:
    """The result as the tensor that is written to holds it: its dtype stays."""
    assert isinstance(out, Ref)
    return call.graph.cast(out, call.tensor("self").dtype)


_SELF_OTHER = "self, other"
_UNARY: dict[str, Callable[[Call], Ref]] = {
    "relu": unary("Relu"), "sigmoid": unary_float("Sigmoid"), "tanh": unary_float("Tanh"),
    "erf": unary_float("Erf"),
    "exp": unary_float("Exp"), "log": unary_float("Log"), "sqrt": unary_float("Sqrt"), "abs": unary("Abs"),
    "neg": unary("Neg"), "sign": unary("Sign"), "sgn": unary("Sign"), "floor": unary("Floor"),
    "ceil": unary("Ceil"),
    "round": unary("Round"), "sin": unary_float("Sin"), "cos": unary_float("Cos"), "tan": unary_float("Tan"),
    "asin": unary_float("Asin"), "acos": unary_float("Acos"), "atan": unary_float("Atan"),
    "sinh": unary_float("Sinh"),
    "cosh": unary_float("Cosh"), "reciprocal": unary_float("Reciprocal"), "rsqrt": rsqrt, "square": square,
    "silu": silu, "mish": unary("Mish"), "selu": unary("Selu"), "hardswish": unary("HardSwish"),
    "hardsigmoid": unary("HardSigmoid", alpha=1 / 6, beta=0.5), "bitwise_not": invert,
    "logical_not": logical_not,
    "isnan": unary_test("IsNaN"), "isinf": unary_test("IsInf"), "relu6": lambda call: _clip(call, 0.0, 6.0),
}  # fmt: skip


def _clip(call: Call, low: float, high: float) -> Ref:
    x = call.tensor("self")
    return call.graph.node(
        "Clip", x, call.graph.constant(low, x.dtype, ()), call.graph.constant(high, x.dtype, ())
    )


_COMPARISONS: dict[str, Callable[[Call], Ref]] = {
    "eq": comparison("Equal"), "ne": not_equal, "lt": comparison("Less"), "le": comparison("LessOrEqual"),
    "gt": comparison("Greater"), "ge": comparison("GreaterOrEqual"),
}  # fmt: skip

RULES: dict[str, AtenRule] = {
    **{
        key: each for name, build in _UNARY.items() for key, each in _forms(name, rule("self", build)).items()
    },
    **{
        key: each
        for name, build in _COMPARISONS.items()
        for key, each in _forms(name, rule(_SELF_OTHER, build), "Tensor", "Scalar").items()
    },
    **_forms("add", rule("self, other, alpha=1", arithmetic("Add")), "Tensor", "Scalar"),
    **_forms("sub", rule("self, other, alpha=1", arithmetic("Sub")), "Tensor", "Scalar"),
    **_forms("mul", rule(_SELF_OTHER, arithmetic("Mul")), "Tensor", "Scalar"),
    **_forms("div", rule(_SELF_OTHER, divide), "Tensor", "Scalar"),
    **_forms("div", rule("self, other, rounding_mode", divide), "Tensor_mode", "Scalar_mode"),
    **_forms("floor_divide", rule(_SELF_OTHER, floor_divide), "", "Scalar", "Tensor"),
    **_forms("remainder", rule(_SELF_OTHER, remainder), "Scalar", "Tensor"),
    **_forms("fmod", rule(_SELF_OTHER, fmod), "Scalar", "Tensor"),
    **_forms("pow", rule("self, exponent", power), "Tensor_Scalar", "Tensor_Tensor", "Scalar"),
    **_forms("maximum", rule(_SELF_OTHER, arithmetic("Max"))),
    **_forms("minimum", rule(_SELF_OTHER, arithmetic("Min"))),
    **_forms("bitwise_and", rule(_SELF_OTHER, bitwise("And", "BitwiseAnd")), "Tensor", "Scalar"),
    **_forms("bitwise_or", rule(_SELF_OTHER, bitwise("Or", "BitwiseOr")), "Tensor", "Scalar"),
    **_forms("bitwise_xor", rule(_SELF_OTHER, bitwise("Xor", "BitwiseXor")), "Tensor", "Scalar"),
    **_forms("logical_and", rule(_SELF_OTHER, logical("And"))),
    **_forms("logical_or", rule(_SELF_OTHER, logical("Or"))),
    **_forms("logical_xor", rule(_SELF_OTHER, logical("Xor"))),
    **_forms("clamp", rule("self, min=None, max=None", clamp)),
    **_forms("clamp_min", rule("self, min", clamp)),
    **_forms("clamp_max", rule("self, max", clamp)),
    **_forms("hardtanh", rule("self, min_val=-1, max_val=1", partial(clamp, low="min_val", high="max_val"))),
    **_forms("gelu", rule("self, approximate='none'", gelu)),
    **_forms("leaky_relu", rule("self, negative_slope=0.01", leaky_relu)),
    **_forms("elu", rule("self, alpha=1, scale=1, input_scale=1", elu)),
    **_forms("masked_fill", rule("self, mask, value", masked_fill), "Scalar", "Tensor"),
    **_forms("addcmul", rule("self, tensor1, tensor2, value=1", addc("Mul"))),
    **_forms("addcdiv", rule("self, tensor1, tensor2, value=1", addc("Div"))),
    "rsub.Scalar": rule("self, other, alpha=1", rsub),
    "rsub.Tensor": rule("self, other, alpha=1", rsub),
    "softplus": rule("self, beta=1, threshold=20", softplus),
    "prelu": rule("self, weight", prelu),
    "_prelu_kernel": rule(
        "self, weight", lambda call: call.graph.node("PRelu", call.tensor("self"), call.tensor("weight"))
    ),
    "where.self": rule("condition, self, other", where),
    "where.ScalarOther": rule("condition, self, other", where),
    "where.ScalarSelf": rule("condition, self, other", where),
}
