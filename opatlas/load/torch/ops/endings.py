"""The nodes after a convolution or a matrix product that can be fused into it. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opatlas.identity.operator import Node, Operator
from opatlas.load.torch.ops.site import TorchSite, is_hard_sigmoid

Activation = tuple[str, Sequence[float], str]
"""oneDNN's name of an activation, its numbers, and which formula; as torch.compile writes them."""

NONE: Activation = ("none", [], "")

_NAMES = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "HardSwish": "hardswish"}


@dataclass(frozen=True)
class Ending:
    """A bias, an added tensor and an activation, in this order, each optional. ``positions``: the nodes that
    the fused call replaces; it makes the last one's output. ``bias`` and ``other`` are value numbers."""

    activation: Activation = NONE
    bias: int | None = None
    other: int | None = None
    positions: tuple[int, ...] = ()


def ending(operator: Operator, position: int) -> Ending | None:
    """What can be fused into the node at ``position``; None if nothing can."""
    node = operator.nodes[position]
    if node.op == "Gemm" and not plain_gemm(operator, node):
        return None
    made, done = node.outputs[0], {position}
    bias: int | None = None
    other: int | None = None
    shape = operator.value(made).shape
    activation = NONE
    while made not in operator.outputs and activation is NONE:
        uses = [index for index, user in enumerate(operator.nodes) if made in user.inputs]
        users = [operator.nodes[index] for index in uses]
        found = _activation(operator, users, made)
        # A product of oneDNN's takes a sum or an activation; a convolution both.
        if found is not None and (node.op == "Conv" or other is None):
            activation, made = found, users[-1].outputs[0]
        elif found is None and len(users) == 1 and users[0].op == "Add" and other is None:
            rest = [number for number in users[0].inputs if number != made]
            added = operator.value(rest[0]).shape if len(rest) == 1 else None
            if added == shape:
                other = rest[0]
            elif added == shape[-1:] and node.op == "MatMul" and bias is None:
                bias = rest[0]
            else:
                break
            made = users[0].outputs[0]
        else:
            break
        done |= set(uses)
    if len(done) == 1:
        return None
    return Ending(activation, bias, other, tuple(sorted(done)))


def plain_gemm(operator: Operator, node: Node) -> bool:
    """Whether a Gemm is a product and at most a bias, nothing scaled."""
    width = operator.value(node.outputs[0]).shape[-1]
    scaled = any(node.attributes[name] != 1 for name in ("alpha", "beta"))
    biased = len(node.inputs) < 3 or node.inputs[2] < 0
    return not scaled and (biased or operator.value(node.inputs[2]).shape in ((width,), (1, width)))


def _activation(operator: Operator, users: list[Node], made: int) -> Activation | None:
    """The activation that uses a value."""
    ops = [node.op for node in users]
    if ops == ["Sigmoid", "Mul"]:
        gate, product = users
        whole = sorted(product.inputs) == sorted((made, gate.outputs[0]))
        inside = sum(gate.outputs[0] in node.inputs for node in operator.nodes) == 1
        return ("swish", [], "") if whole and inside and gate.outputs[0] not in operator.outputs else None
    if len(users) != 1:
        return None
    site = TorchSite(operator, users[0], {})
    if ops[0] in _NAMES:
        return _NAMES[ops[0]], [], ""
    if ops[0] == "Gelu":
        return "gelu", [], site.attrs["approximate"]
    if ops[0] == "LeakyRelu":
        return "leaky_relu", [site.number("alpha")], ""
    if ops[0] == "HardSigmoid":
        return ("hardsigmoid", [], "") if is_hard_sigmoid(site) else None
    if ops[0] == "Clip":
        low, high = site.scalar(1), site.scalar(2)
        return None if low is None or high is None else ("hardtanh", [float(low), float(high)], "")
    return None
