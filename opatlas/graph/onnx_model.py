"""An ONNX model taken apart into canonical operators with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opatlas.errors import InvalidOperator
from opatlas.graph.propagate import propagate
from opatlas.graph.read import MAX_MODEL_BYTES, nodes_inside, read_onnx
from opatlas.graph.walk import Walk
from opatlas.identity import Operator, canonicalise, check_measurable
from opatlas.identity.canonical import Canonical

MAX_SHAPING_ELEMENTS = 1024
"""A constant with more elements is handed on by type alone: it shapes no computation."""


KnownNodes = dict[bytes, Canonical | str]


@dataclass(frozen=True)
class Extracted:
    """A distinct operator of a model, how often one run calls it (of a loop: one iteration), and the name of
    one node it came from."""

    operator: Operator
    calls: int
    example: str


@dataclass(frozen=True)
class Extraction:
    """What a model or an operator list came to.

    ``calls`` counts all compute calls of one run; ``unmapped`` those that no canonical operator expresses, by
    reason. ``folded`` nodes were constant (shape arithmetic, generated weights) and are no compute. How often
    a loop goes round, and which branch is taken, only a run knows: a body's nodes count once, as of one
    iteration, and those of both branches.
    """

    operators: list[Extracted]
    unmapped: dict[str, int] = field(default_factory=dict)
    folded: int = 0

    @property
    def calls(self) -> int:
        return sum(found.calls for found in self.operators) + sum(self.unmapped.values())


def extract(
    data: bytes, dims: Mapping[str, int] | None = None, *, max_bytes: int = MAX_MODEL_BYTES
) -> Extraction:
    """Take an ONNX file's bytes apart; ``dims`` gives every symbolic dimension its size.

    Raises :class:`opatlas.errors.InvalidModel` with one sentence for what cannot be read: truncated or
    hostile files, dimensions that are not given, contradictory shapes.
    """
    return extraction_of(propagate(read_onnx(data, max_bytes=max_bytes), dims or {}), {})


def extraction_of(walk: Walk, known: KnownNodes) -> Extraction:
    """The same of a model that was walked."""
    found: dict[str, tuple[Operator, int, str]] = {}
    unmapped: Counter[str] = Counter()
    walks = [walk]
    folded = 0
    while walks:
        walk = walks.pop(0)
        folded += len(walk.folded)
        for step in walk.steps:
            walks += [body.walk for body in step.bodies]
            if step.shut and (inside := len(nodes_inside(step.node))):
                unmapped[f"inside the body of {step.node.op_type}: {step.shut}"] += inside
            result = step.reason or canonical_node(walk, step.lean, known)
            if isinstance(result, str):
                unmapped[result] += 1
                continue
            first = (result.operator, 0, step.lean.name or step.lean.output[0])
            operator, calls, example = found.get(result.operator.key, first)
            found[operator.key] = (operator, calls + 1, example)
    return Extraction([Extracted(*row) for row in found.values()], dict(unmapped), folded)


def canonical_node(walk: Walk, node: onnx.NodeProto, known: KnownNodes) -> Canonical | str:
    """The canonical operator of one node, or the reason why there is none. Equal nodes are done once, as long
    as ``known`` is kept; its inputs are named ``i0``, ``i1``, … by the node's own, each once."""
    model, constants = single_node_model(walk, node)
    signature = model.SerializeToString(deterministic=True) + repr(constants).encode()
    if signature not in known:
        try:
            found = canonicalise(model, const=constants)
            check_measurable(found.operator)
            known[signature] = found
        except InvalidOperator as error:
            known[signature] = f"{node.op_type}: {error}"
    return known[signature]


def single_node_model(walk: Walk, node: onnx.NodeProto) -> tuple[onnx.ModelProto, list[str]]:
    """One node as a model of its own, values renamed by position, and which graph inputs are constants.

    Small constants become initializers (they may shape the computation); weights become graph inputs.
    """
    names = {name: f"i{index}" for index, name in enumerate(dict.fromkeys(filter(None, node.input)))}
    names |= {name: f"o{index}" for index, name in enumerate(node.output) if name}
    renamed = onnx.NodeProto()
    renamed.CopyFrom(node)
    renamed.name = renamed.doc_string = ""
    del renamed.input[:], renamed.output[:], renamed.metadata_props[:]
    renamed.input.extend(names[name] if name else "" for name in node.input)
    renamed.output.extend(names[name] if name else "" for name in node.output)
    inputs, initializers, constants = [], [], []
    for name in dict.fromkeys(filter(None, node.input)):
        value = walk.values.get(name)
        if value is not None and value.size <= MAX_SHAPING_ELEMENTS:
            initializers.append(
                numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), names[name])
            )
            continue
        inputs.append(helper.make_value_info(names[name], walk.types[name].to_proto()))
        if name in walk.constants:
            constants.append(names[name])
    outputs = [
        helper.make_value_info(names[name], walk.types[name].to_proto()) for name in node.output if name
    ]
    graph = helper.make_graph([renamed], "operator", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", walk.opset)]), constants
