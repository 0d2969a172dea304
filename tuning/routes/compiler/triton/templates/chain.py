"""Chains of pointwise operators: one generated kernel, each tensor read once and written once. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opatlas.identity import Operator, Setting, Target, Value
from opatlas.identity.operator import Node
from tuning.routes.compiler.triton.launch import (
    Configuration,
    TritonLaunch,
    elements,
    of_input,
    of_output,
    parts,
    steps,
    unwieldy,
)

MOST_NODES = 48
FUNCTION = "chain"

Attributes = Mapping[str, Any]
Term = Callable[..., str]


def _said(text: str) -> Term:
    """A formula over ``{0}``, ``{1}``, … and the node's attributes by name."""
    return lambda a, *x: text.format(*x, **a)


def _folded(text: str) -> Term:
    """The same of any number of operands, taken one after another."""

    def fold(attributes: Attributes, first: str, *others: str) -> str:
        for other in others:
            first = text.format(first, other)
        return first

    return fold


def _gelu(attributes: Attributes, x: str) -> str:
    if attributes.get("approximate") == "tanh":
        return f"0.5 * {x} * (1.0 + tanh(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x})))"
    return f"0.5 * {x} * (1.0 + tl.erf({x} * 0.7071067811865476))"


def _clip(attributes: Attributes, x: str, least: str = "", most: str = "") -> str:
    made = f"tl.where({x} < {least}, {least}, {x})" if least else x
    return f"tl.where({made} > {most}, {most}, {made})" if most else made


TERMS: Mapping[str, Term] = {
    "Abs": _said("tl.abs({0})"),
    "Add": _said("{0} + {1}"),
    "And": _said("{0} & {1}"),
    "Cast": _said("{0}"),
    "Ceil": _said("tl.ceil({0})"),
    "Celu": _said("tl.where({0} > 0, {0}, {alpha} * expm1({0} / {alpha}))"),
    "Clip": _clip,
    "Cos": _said("tl.cos({0})"),
    "Div": _said("tl.div_rn({0}, {1})"),
    "Elu": _said("tl.where({0} > 0, {0}, {alpha} * expm1({0}))"),
    "Equal": _said("{0} == {1}"),
    "Erf": _said("tl.erf({0})"),
    "Exp": _said("tl.exp({0})"),
    "Floor": _said("tl.floor({0})"),
    "Gelu": _gelu,
    "Greater": _said("{0} > {1}"),
    "GreaterOrEqual": _said("{0} >= {1}"),
    "HardSigmoid": _said("tl.minimum(tl.maximum({alpha} * {0} + {beta}, 0.0), 1.0)"),
    "HardSwish": _said("{0} * tl.minimum(tl.maximum({0} / 6.0 + 0.5, 0.0), 1.0)"),
    "Identity": _said("{0}"),
    "LeakyRelu": _said("tl.where({0} < 0, {alpha} * {0}, {0})"),
    "Less": _said("{0} < {1}"),
    "LessOrEqual": _said("{0} <= {1}"),
    "Log": _said("tl.log({0})"),
    "Max": _folded("tl.where(({0} > {1}) | ({0} != {0}), {0}, {1})"),
    "Mean": lambda a, *x: f"({' + '.join(x)}) / {float(len(x))}",
    "Min": _folded("tl.where(({0} < {1}) | ({0} != {0}), {0}, {1})"),
    "Mish": _said("{0} * tanh(softplus({0}))"),
    "Mul": _said("{0} * {1}"),
    "Neg": _said("-{0}"),
    "Not": _said("{0} == 0"),
    "Or": _said("{0} | {1}"),
    "PRelu": _said("tl.where({0} < 0, {1} * {0}, {0})"),
    "Reciprocal": _said("tl.div_rn(1.0, {0})"),
    "Relu": _said("tl.where({0} < 0, 0.0, {0})"),
    "Selu": _said("{gamma} * tl.where({0} > 0, {0}, {alpha} * expm1({0}))"),
    "Sigmoid": _said("sigmoid({0})"),
    "Sign": _said("tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0}))"),
    "Sin": _said("tl.sin({0})"),
    "Softplus": _said("softplus({0})"),
    "Softsign": _said("{0} / (1.0 + tl.abs({0}))"),
    "Sqrt": _said("tl.sqrt_rn({0})"),
    "Sub": _said("{0} - {1}"),
    "Sum": _folded("{0} + {1}"),
    "Swish": _said("{0} * sigmoid({alpha} * {0})"),
    "Tanh": _said("tanh({0})"),
    "ThresholdedRelu": _said("tl.where({0} > {alpha}, {0}, 0.0)"),
    "Where": _said("tl.where({0} != 0, {1}, {2})"),
    "Xor": _said("{0} ^ {1}"),
}
"""ONNX operator → its formula. Floats of half types are computed in float32, and rounded where they are
written."""


class Chain:
    """Whatever is pointwise, fused into one pass."""

    name = "chain"
    types = frozenset(TERMS)

    def missing(self, operator: Operator) -> str | None:
        if len(operator.nodes) > MOST_NODES:
            return f"chains of more than {MOST_NODES} nodes are not generated for Triton"
        if reason := unwieldy(operator, strided=True):
            return reason
        for node in operator.nodes:
            if node.domain or node.op not in TERMS:
                return f"the Triton templates have no {node.op}"
        for value in operator.inputs:
            if value.data is not None and (len(value.data) != 1 or isinstance(value.data[0], str)):
                return "tables of written-out numbers are not generated for Triton"
        if any(value.shape != _shape(operator) for value in operator.output_values):
            return "the outputs of a Triton chain have one shape"
        return None

    def configurations(self, operator: Operator, target: Target, setting: Setting) -> Iterator[Configuration]:
        count = elements(_shape(operator))
        for block, warps in ((1024, 4), (2048, 8), (512, 4), (4096, 8), (1024, 8), (256, 2), (8192, 16)):
            if block == 256 or block <= count:
                yield {"block": block, "warps": warps, "stages": 1}

    def launch(self, operator: Operator, setting: Setting, configuration: Configuration) -> TritonLaunch:
        read = operator.tensor_inputs
        pointers = [of_input(f"x{number}", operator, number) for number in read]
        pointers += [of_output(f"y{at}", operator, at) for at in range(len(operator.outputs))]
        count, block = elements(_shape(operator)), configuration["block"]
        return TritonLaunch(
            FUNCTION,
            tuple(pointers),
            {"COUNT": count, "BLOCK": block},
            (parts(count, block), 1, 1),
            configuration["warps"],
            configuration["stages"],
            text=source(operator, setting),
        )


def source(operator: Operator, setting: Setting) -> str:
    """The kernel, as a module of its own."""
    names: dict[int, str] = {}
    lines: list[str] = []
    shape = _shape(operator)
    for number, value in enumerate(operator.inputs):
        if value.data is not None:
            names[number] = repr(value.data[0]).replace("inf", 'float("inf")').replace("nan", 'float("nan")')
            continue
        names[number] = f"v{number}"
        lines.append(
            f"v{number} = tl.load(x{number} + {_place(value, shape)}, mask=keep){_wide(value.dtype)}"
        )
    for node in operator.nodes:
        made = node.outputs[0]
        names[made] = f"v{made}"
        lines.append(f"v{made} = {_formula(operator, node, names, setting)}")
    for at, number in enumerate(operator.outputs):
        lines.append(f"tl.store(y{at} + place, ({names[number]}).to(y{at}.dtype.element_ty), mask=keep)")
    arguments = [f"x{number}" for number in operator.tensor_inputs]
    arguments += [f"y{at}" for at in range(len(operator.outputs))]
    body = "\n    ".join(lines)
    return f"""\
import triton
import triton.language as tl

from tuning.routes.compiler.triton.kernels.maths import expm1, sigmoid, softplus, tanh


@triton.jit
def {FUNCTION}({", ".join(arguments)}, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = place < COUNT
    {body}
"""


def _formula(operator: Operator, node: Node, names: Mapping[int, str], setting: Setting) -> str:
    operands = [names[number] if number >= 0 else "" for number in node.inputs]
    if node.op not in ("Clip",):
        operands = [one for one in operands if one]
    text = TERMS[node.op](node.attributes, *operands)
    if setting.fast_math:
        text = text.replace("tl.div_rn", "tl.fdiv").replace("tl.sqrt_rn", "tl.sqrt")
    made, given = operator.value(node.outputs[0]).dtype, operator.value(node.inputs[0]).dtype
    if node.op == "Cast" and made == "bool":
        return f"{text} != 0"
    if node.op == "Cast" and (given == "bool" or made != "float32"):
        # What is cast to a narrower type is rounded, and computed with in float32 again.
        return f"({text}).to({_TYPES[made]}).to(tl.float32)"
    return text


_TYPES = {"float16": "tl.float16", "bfloat16": "tl.bfloat16", "float32": "tl.float32"}


def _wide(dtype: str) -> str:
    return "" if dtype == "bool" else ".to(tl.float32)"


def _shape(operator: Operator) -> tuple[int, ...]:
    return operator.output_values[0].shape


def _place(value: Value, shape: Sequence[int]) -> str:
    """Where an input's element lies that belongs to ``place`` of the dense output."""
    if value.shape == tuple(shape) and value.strides is None:
        return "place"
    ahead = len(shape) - len(value.shape)
    found = [0 if size == 1 else step for size, step in zip(value.shape, steps(value), strict=True)]
    terms, inside = [], 1
    for size, step in reversed(list(zip(shape, (0,) * ahead + tuple(found), strict=True))):
        if step:
            index = f"place // {inside} % {size}" if inside > 1 else f"place % {size}"
            terms.append(f"({index}) * {step}")
        inside *= size
    return " + ".join(reversed(terms)) or "place * 0"
