"""A model in normal form: values and nodes by number, and a key of its structure. PURE.

What a plan says of a model it says by these numbers, so that it is good for every model of one structure,
whatever its names and weights are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opatlas.errors import InvalidModel, first_line
from opatlas.graph.channels_last import NOTHING, ChannelsLast
from opatlas.graph.linked import LEFT_OUT, Linked, NodeAt, NodePath
from opatlas.graph.onnx_model import Extraction, KnownNodes, canonical_node, extraction_of
from opatlas.graph.propagate import REFUSALS, has_random, propagate
from opatlas.graph.read import MAX_MODEL_BYTES, MAX_NODES, captured, read_onnx, reads_of, renamed
from opatlas.graph.types import TensorType
from opatlas.graph.walk import Body, ComputeStep, Walk
from opatlas.graph.weights import serialisable
from opatlas.identity.canonical import Canonical
from opatlas.identity.operator import digest_key

MODEL_KEY_VERSION = "m1"
MOST_SHAPING = 16
"""Numbers of a constant: floats of so few may say what is computed (a Resize's scales), more are weights."""
_FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
)


@dataclass(frozen=True)
class GraphNode(Linked):
    """One node that computes. ``inputs`` and ``outputs`` are value numbers; ``captured``: what its bodies
    read of the graph's values. ``reason`` says why it is no operator, if so; ``lean`` is the node without
    outputs that nobody reads, which have no number. ``bodies``: of a branch or loop that can be taken apart,
    in the order then, else."""

    proto: onnx.NodeProto
    lean: onnx.NodeProto
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captured: tuple[int, ...] = ()
    reason: str = ""
    bodies: tuple[GraphBody, ...] = ()


@dataclass(frozen=True)
class GraphBody:
    """A body as a graph of its own. ``formal``: its numbers of what its node gives it, in order;
    ``captured``: its numbers of outer values that only a run knows, with theirs outside."""

    graph: ModelGraph
    formal: tuple[int, ...]
    captured: tuple[tuple[int, int], ...]


class ModelGraph:
    """A checked model: constants folded, branches that are always taken put in their place.

    ``inputs`` and ``outputs`` are the numbers of what a run is given and gives, in the model's order;
    ``nodes`` stand in an order in which they can run. Raises :class:`opatlas.errors.InvalidModel`.
    """

    nhwc: ChannelsLast = NOTHING
    """Of a laid-out model (:mod:`opatlas.graph.laid_model`), what of its base lies channels-last."""

    def __init__(
        self,
        data: bytes,
        dims: Mapping[str, int] | None = None,
        *,
        max_bytes: int = MAX_MODEL_BYTES,
        max_nodes: int = MAX_NODES,
        folder: Path | None = None,
        links: Sequence[Path] = (),
    ) -> None:
        """``folder``: where files with its weights lie, if it may have such; ``links``: folders into which
        links there may lead, which are not followed without any."""
        model = read_onnx(data, max_bytes=max_bytes, max_nodes=max_nodes, folder=folder, links=links)
        self._set_up(model, propagate(model, dims or {}), None)

    def _set_up(self, model: onnx.ModelProto, walk: Walk, outer: ModelGraph | None) -> None:
        self.model, self.walk, self._outer = model, walk, outer
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._known: KnownNodes = outer._known if outer is not None else {}
        self.input_names = tuple(one.name for one in model.graph.input if one.name not in walk.constants)
        self.output_names = tuple(one.name for one in model.graph.output)
        self.inputs = tuple(self._number(name) for name in self.input_names)
        self.nodes = tuple(self._node(step) for step in walk.steps)
        self.outputs = tuple(self._number(name) for name in self.output_names)
        self.is_random = has_random(walk)
        made = [value for node in self.nodes for value in node.outputs if value != LEFT_OUT]
        if len(set(made)) < len(made):
            raise InvalidModel("Two of the model's nodes make the same value.")

    def _body(self, body: Body) -> GraphBody:
        """A body as a model whose inputs are what it is given and what it captures. Weights stay where they
        are: in the file's own tensors."""
        graph = onnx.GraphProto()
        graph.node.extend(body.graph.node)
        graph.input.extend(self._given_type(value, body.walk) for value in body.graph.input)
        described = (helper.make_value_info(name, self._outer_type(name)) for name in body.captured)
        graph.input.extend(described)
        graph.value_info.extend(body.graph.value_info)
        graph.output.extend(body.graph.output)
        model = helper.make_model(graph, opset_imports=self.model.opset_import)
        model.ir_version = max(self.model.ir_version, 4)
        inner = ModelGraph.__new__(ModelGraph)
        inner._set_up(model, body.walk, self)
        formal = tuple(inner._numbers[value.name] for value in body.graph.input)
        captured = tuple(
            (inner._numbers[name], self._number(name))
            for name in body.captured
            if name not in body.walk.constants
        )
        return GraphBody(inner, formal, captured)

    @staticmethod
    def _given_type(value: onnx.ValueInfoProto, walk: Walk) -> onnx.ValueInfoProto:
        """Of what a body is given: as it is known, else as far as it stays the same."""
        kind = walk.types.get(value.name)
        if kind is not None:
            return helper.make_value_info(value.name, kind.to_proto())
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(value)
        if copy.type.HasField("tensor_type"):
            copy.type.tensor_type.ClearField("shape")
        return copy

    def _outer_type(self, name: str) -> onnx.TypeProto:
        return self.proto_of(name) or onnx.TypeProto()

    @cached_property
    def key(self) -> str:
        """``m1:`` and the SHA-256 of the structure: types, operators, attributes and how they hang together.
        Values of weights are not in it; numbers that shape the computation are."""
        return digest_key(MODEL_KEY_VERSION, self._structure())

    def type_of(self, number: int) -> TensorType | None:
        """None where it is only known when the model runs."""
        return self.walk.types.get(self.names[number])

    def proto_of(self, name: str) -> onnx.TypeProto | None:
        """The type of a model's input or output, with the sizes that dimensions were given; as far as it is
        known."""
        kind = self.walk.types.get(self._same(name))
        return kind.to_proto() if kind is not None else self._inferred.get(name)

    def can_begin_at(self, number: int) -> bool:
        """Whether a part of the model can be given this value: its element type must be known."""
        return self.type_of(number) is not None or self.names[number] in self._inferred

    def is_constant(self, number: int) -> bool:
        return self.names[number] in self.walk.constants

    @property
    def unlaid(self) -> ModelGraph:
        """Itself; of a laid-out model its base."""
        return self

    def own_nodes(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers that the nodes have in :attr:`unlaid`; of a laid-out model's Transposes none."""
        return nodes

    def own_path(self, at: NodePath) -> NodePath | None:
        """Where a node is in :attr:`unlaid`, bodies included; None of a Transpose that is not there."""
        return at

    def operator(self, node: int) -> tuple[Canonical, tuple[int, ...]] | None:
        """The canonical operator of a node, and the value of each of its tensor inputs; None where it is
        none."""
        one = self.nodes[node]
        if one.reason:
            return None
        canonical = canonical_node(self.walk, one.lean, self._known)
        if isinstance(canonical, str):
            return None
        given = list(dict.fromkeys(filter(None, one.lean.input)))
        places = []
        for tensor in canonical.operator.tensor_inputs:
            name = canonical.inputs[tensor]
            if name is None:
                return None
            places.append(self._number(given[int(name[1:])]))
        if len(canonical.operator.outputs) != len(one.makes):
            return None
        return canonical, tuple(places)

    def extraction(self) -> Extraction:
        """Its distinct operators with counts, as :func:`opatlas.graph.extract` gives them."""
        return extraction_of(self.walk, self._known)

    def operators(self) -> dict[NodeAt, tuple[Canonical, tuple[int, ...]]]:
        """:meth:`operator` of each node that is one, those in bodies included."""
        found: dict[NodeAt, tuple[Canonical, tuple[int, ...]]] = {}
        for number, node in enumerate(self.nodes):
            if (own := self.operator(number)) is not None:
                found[number] = own
            for which, body in enumerate(node.bodies):
                for at, one in body.graph.operators().items():
                    found[number, which, *(at if isinstance(at, tuple) else (at,))] = one
        return found

    def part(
        self, nodes: Collection[int], outputs: Sequence[int], constants: Mapping[int, np.ndarray]
    ) -> tuple[onnx.ModelProto, tuple[int, ...]]:
        """Some of the nodes as a model of their own, and the numbers of its inputs, in order.

        ``constants`` gives the values of those that it needs. Raises :class:`InvalidModel` where an element
        type of an input is not known.
        """
        chosen = [self.nodes[number] for number in sorted(nodes)]
        made = frozenset().union(*(node.makes for node in chosen))
        read = sorted(frozenset().union(*(node.reads for node in chosen)) - made)
        inputs = tuple(number for number in read if not self.is_constant(number))
        weights = [
            numpy_helper.from_array(np.asarray(constants[number], order="C"), self.names[number])
            for number in read
            if self.is_constant(number)
        ]
        graph = helper.make_graph(
            [self._settled(node.proto) for node in chosen],
            "part",
            [self.described(number) for number in inputs],
            [self.described(number, optional=True) for number in outputs],
            weights,
        )
        return self._model(graph), inputs

    def constants_of(self, nodes: Collection[int]) -> frozenset[int]:
        """Constants that some nodes read."""
        read = frozenset().union(*(self.nodes[number].reads for number in nodes))
        return frozenset(number for number in read if self.is_constant(number))

    def evaluate(self, wanted: Iterable[int]) -> dict[int, np.ndarray]:
        """Values of constants: of initializers as they are, of what is folded by ONNX Runtime, once."""
        found, computed = dict[int, np.ndarray](), []
        for number in wanted:
            name = self.names[number]
            if name in self._outer_constants:
                found[number] = self._from_outside(name)
            elif self._is_given(name):
                found[number] = numpy_helper.to_array(self._initializer(name))
            else:
                computed.append(number)
        return found | self._compute(computed) if computed else found

    def _compute(self, wanted: Sequence[int]) -> dict[int, np.ndarray]:
        import onnxruntime as ort

        names = [self.names[number] for number in wanted]
        makers = {name: node for node in self.walk.folded for name in node.output if name}
        needed, read, waiting = set[str](), set[str](), list(names)
        while waiting:
            name = self._same(waiting.pop())
            if self._is_given(name):
                read.add(name)
            elif name not in needed:
                if name not in makers:
                    raise InvalidModel(f"The constant '{name}' cannot be computed before the model runs.")
                needed.update(makers[name].output)
                waiting.extend(reads_of(makers[name]))
        order = [node for node in self.walk.folded if not needed.isdisjoint(filter(None, node.output))]
        graph = helper.make_graph(
            [self._settled(node) for node in order],
            "constants",
            [],
            [helper.make_value_info(name, onnx.TypeProto()) for name in names],
            [self._initializer(name) for name in sorted(read)],
        )
        options = ort.SessionOptions()
        options.log_severity_level = 4
        data = self._model(graph).SerializeToString()
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return dict(zip(wanted, map(np.asarray, session.run(names, {})), strict=True))

    def _is_given(self, name: str) -> bool:
        """Whether it is in the file, or a shape that is known; all else is computed as ONNX Runtime does it,
        not by the reference that shapes were told by."""
        return name in self.walk.initializers or name in self._shapes or name in self._outer_constants

    @cached_property
    def _outer_constants(self) -> frozenset[str]:
        """Of a body: constants that it captures."""
        if self._outer is None:
            return frozenset()
        return frozenset(one.name for one in self.model.graph.input if one.name in self.walk.constants)

    @cached_property
    def _shapes(self) -> frozenset[str]:
        shaping = (node for node in self.walk.folded if node.op_type in ("Shape", "Size"))
        return frozenset(name for node in shaping for name in node.output)

    def _from_outside(self, name: str) -> np.ndarray:
        assert self._outer is not None
        number = self._outer._number(name)
        return self._outer.evaluate([number])[number]

    def _initializer(self, name: str) -> onnx.TensorProto:
        if name in self.walk.initializers:
            return self.walk.initializers[name]
        if name in self._outer_constants:
            return numpy_helper.from_array(np.asarray(self._from_outside(name), order="C"), name)
        return numpy_helper.from_array(np.asarray(self.walk.values[name], order="C"), name)

    def _model(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        """For the same runtime as the whole model."""
        model = helper.make_model(graph, opset_imports=self.model.opset_import)
        model.functions.extend(self.model.functions)
        model.ir_version = max(self.model.ir_version, 4)  # before 4 every initializer was an input too
        return model

    def _node(self, step: ComputeStep) -> GraphNode:
        proto = step.node
        inner = [
            graph
            for attribute in proto.attribute
            for graph in ([attribute.g] if attribute.HasField("g") else attribute.graphs)
        ]
        outer = sorted(set().union(*(captured(graph) for graph in inner))) if inner else []
        inputs = tuple(self._number(name) if name else LEFT_OUT for name in proto.input)
        within = tuple(self._number(name) for name in outer)
        outputs = tuple(self._number(name) if name else LEFT_OUT for name in step.lean.output)
        bodies = tuple(self._body(body) for body in step.bodies)
        return GraphNode(proto, step.lean, inputs, outputs, within, step.reason, bodies)

    def _same(self, name: str) -> str:
        return self.walk.settled(name)

    def _number(self, name: str) -> int:
        name = self._same(name)
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def _settled(self, proto: onnx.NodeProto) -> onnx.NodeProto:
        """With the names that values have after branches were put in their place."""
        names = {name: self._same(name) for name in reads_of(proto) if name in self.walk.same}
        return renamed(proto, names) if names else proto

    def described(self, number: int, optional: bool = False) -> onnx.ValueInfoProto:
        """A value's name and type as a model says them. ``optional``: the type, where it is known. Raises
        :class:`InvalidModel` where it has to be and is not."""
        kind, name = self.type_of(number), self.names[number]
        if kind is not None:
            return helper.make_value_info(name, kind.to_proto())
        if optional:
            return helper.make_value_info(name, onnx.TypeProto())
        inferred = self._inferred.get(name)
        if inferred is None:
            raise InvalidModel(f"The type of '{name}' is not known, so nothing can begin there.")
        return helper.make_value_info(name, inferred)

    @cached_property
    def _inferred(self) -> dict[str, onnx.TypeProto]:
        """What ONNX says of values whose shapes are only known at run time."""
        try:
            whole = onnx.shape_inference.infer_shapes(serialisable(self.model))
        except REFUSALS as error:
            raise InvalidModel(f"ONNX cannot tell the model's types: {first_line(error)}") from None
        values = (*whole.graph.input, *whole.graph.value_info, *whole.graph.output)
        return {value.name: value.type for value in values if value.type.WhichOneof("value")}

    def _structure(self) -> dict[str, Any]:
        names = {name: f"v{number}" for number, name in enumerate(self.names)}
        return {
            "opsets": sorted((entry.domain, entry.version) for entry in self.model.opset_import),
            "inputs": [self._input_json(name) for name in self.input_names],
            "functions": [_hashed(one) for one in self.model.functions],
            "sparse": [_hashed(one) for one in self.model.graph.sparse_initializer],
            "constants": [
                [number, *self._constant_json(name)]
                for number, name in enumerate(self.names)
                if self.is_constant(number)
            ],
            "nodes": [_node_json(node.lean, lambda name: names[self._same(name)], 0) for node in self.nodes],
            "outputs": list(self.outputs),
        }

    def _input_json(self, name: str) -> Any:
        kind = self.walk.types.get(name)
        if kind is not None:
            return _type_json(kind)
        return next(_hashed(value.type) for value in self.model.graph.input if value.name == name)

    def _constant_json(self, name: str) -> list[Any]:
        kind, value = self.walk.types[name], self.walk.values.get(name)
        if value is None or (kind.element in _FLOATS and kind.size > MOST_SHAPING):
            return [_type_json(kind)]
        if value.dtype.kind in "OSU":
            return [_type_json(kind), [str(one) for one in value.reshape(-1).tolist()]]
        return [_type_json(kind), hashlib.sha256(np.asarray(value, order="C").tobytes()).hexdigest()]


def _type_json(kind: TensorType) -> list[Any]:
    return [kind.element, list(kind.shape)]


def _hashed(proto: Any) -> str:
    return hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()


def _node_json(node: onnx.NodeProto, name_of: Callable[[str], str], depth: int) -> list[Any]:
    """What a node is, by the numbers of its values; names and documentation are nothing."""
    return [
        node.domain,
        node.op_type,
        [name and name_of(name) for name in node.input],
        [name and name_of(name) for name in node.output],
        sorted(_attribute_json(one, name_of, depth) for one in node.attribute),
    ]


def _attribute_json(attribute: onnx.AttributeProto, name_of: Callable[[str], str], depth: int) -> list[Any]:
    graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    if graphs:
        return [attribute.name, [_body_json(graph, name_of, depth + 1) for graph in graphs]]
    plain = onnx.AttributeProto()
    plain.CopyFrom(attribute)
    plain.doc_string = ""
    return [attribute.name, _hashed(plain)]


def _body_json(graph: onnx.GraphProto, outer: Callable[[str], str], depth: int) -> list[Any]:
    """A body, its own values numbered in order."""
    own: dict[str, str] = {}
    for name in (
        *(value.name for value in graph.input),
        *(tensor.name for tensor in graph.initializer),
        *(name for node in graph.node for name in node.output if name),
    ):
        own.setdefault(name, f"b{depth}.{len(own)}")

    def name_of(name: str) -> str:
        return own.get(name) or outer(name)

    return [
        [_hashed(value.type) for value in graph.input],
        [_hashed(_unnamed(tensor)) for tensor in graph.initializer],
        [_hashed(sparse) for sparse in graph.sparse_initializer],
        [_node_json(node, name_of, depth) for node in graph.node],
        [name_of(value.name) for value in graph.output],
    ]


def _unnamed(tensor: onnx.TensorProto) -> onnx.TensorProto:
    plain = onnx.TensorProto()
    plain.CopyFrom(tensor)
    plain.name = plain.doc_string = ""
    return plain
