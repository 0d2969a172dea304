"""A model of which parts lie channels-last, as a model: the same inputs, outputs and values. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opatlas.graph.channels_last import ChannelsLast
from opatlas.graph.laid_out import AS_GIVEN, TO_NHWC, TURNED, LaidOutForm, NotLaidOut, laid_out_form
from opatlas.graph.linked import LEFT_OUT, NodePath
from opatlas.graph.normal import GraphBody, ModelGraph
from opatlas.graph.read import renamed
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.graph.weights import MOST_SERIALISED, weight_bytes

BODIES = ("then_branch", "else_branch", "body")
"""Attributes with bodies, in the order in which a node has them."""


class LaidOutGraph(ModelGraph):
    """``base`` with Transposes around its units and between them; ``form`` says which node is which. Its key
    is the base's, and so are those of its bodies: a plan of it says beside what lies otherwise. Raises
    :class:`NotLaidOut`."""

    def __init__(self, base: ModelGraph, nhwc: ChannelsLast) -> None:
        self.base, self.form = base, laid_out_form(TypedNodes.of_graph(base), nhwc)
        names = _names(base, self.form)
        _check_size(weight_bytes(base.model))
        model = self._laid_model(names)
        _check_size(model.ByteSize())  # bodies have copies of weights
        super().__init__(model.SerializeToString())
        self.nhwc = nhwc
        if self.names != names or not _is_as_said(self, self.form):  # else a plan would mean other nodes
            raise NotLaidOut("The model with its Transposes has not the nodes that it should have.")
        _take_keys(self, base, self.form)

    @cached_property
    def key(self) -> str:
        return self.base.key

    @property
    def unlaid(self) -> ModelGraph:
        return self.base

    def own_nodes(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        origins = (self.form.nodes[number].origin for number in nodes)
        return tuple(number for number in origins if number != LEFT_OUT)

    def own_path(self, at: NodePath) -> NodePath | None:
        return self.form.own_path(at)

    def _laid_model(self, names: Sequence[str]) -> onnx.ModelProto:
        return self.base._model(_Written(self.base, self.form, names).whole())


class _Written:
    """A form as ONNX's graph. ``names``: of its values."""

    def __init__(self, base: ModelGraph, form: LaidOutForm, names: Sequence[str]) -> None:
        self._base, self._form, self._names = base, form, names

    def whole(self) -> onnx.GraphProto:
        """Of a model: its inputs are the base's."""
        base, form = self._base, self._form
        return helper.make_graph(
            self._nodes(),
            "laid out",
            [base.described(number) for number in base.inputs],
            [self._end(number) for number in form.outputs],
            self._weights({one for laid in form.nodes for one in laid.reads} | set(form.outputs)),
            value_info=self._known_types([*form.inputs, *form.outputs]),
        )

    def body(self, formal: Sequence[int], as_given: onnx.GraphProto) -> onnx.GraphProto:
        """Of a body. ``as_given``: as it is in the file, whose types are kept, since of a loop that does not
        go round once ONNX Runtime gives shapes by what it could infer. Constants that leave are made in it: a
        body's output is what a node of it makes."""
        form, names = self._form, self._names
        leaving = list(dict.fromkeys(one for one in form.outputs if self._is_constant(one)))
        read = {one for laid in form.nodes for one in laid.reads} - set(leaving)
        made = [
            helper.make_node("Constant", [], [names[one]], value=weight)
            for one, weight in zip(leaving, self._weights(leaving), strict=True)
        ]
        given, ends = (
            [
                helper.make_value_info(names[number], self._declared(number, value.type))
                for number, value in zip(numbers, values, strict=True)
            ]
            for numbers, values in ((formal, as_given.input), (form.outputs, as_given.output))
        )
        kept = [value for value in as_given.value_info if value.name in names]
        weights = self._weights(read)
        return helper.make_graph([*made, *self._nodes()], "laid out", given, ends, weights, value_info=kept)

    def _declared(self, number: int, as_given: onnx.TypeProto) -> onnx.TypeProto:
        """What the file says of a value, as it lies here."""
        found = onnx.TypeProto()
        found.CopyFrom(as_given)
        dims = found.tensor_type.shape.dim
        if self._form.values[number].how == TURNED and len(dims) == len(TO_NHWC):
            turned = [as_given.tensor_type.shape.dim[axis] for axis in TO_NHWC]
            del dims[:]
            dims.extend(turned)
        return found

    def _is_constant(self, number: int) -> bool:
        return self._base.is_constant(self._form.values[number].value)

    def _weights(self, numbers: Iterable[int]) -> list[onnx.TensorProto]:
        """Of those that are constants."""
        constants = sorted(one for one in numbers if self._is_constant(one))
        values = self._base.evaluate([self._form.values[one].value for one in constants])
        return [
            numpy_helper.from_array(
                np.asarray(values[self._form.values[one].value], order="C"), self._names[one]
            )
            for one in constants
        ]

    def _nodes(self) -> list[onnx.NodeProto]:
        base, names = self._base, self._names
        outer = {
            base.names[one.value]: names[number]
            for number, one in enumerate(self._form.values)
            if one.how == AS_GIVEN and base.names[one.value] != names[number]
        }
        nodes = []
        for laid in self._form.nodes:
            inputs = [names[one] if one != LEFT_OUT else "" for one in laid.inputs]
            outputs = [names[one] if one != LEFT_OUT else "" for one in laid.outputs]
            if laid.origin == LEFT_OUT:
                nodes.append(helper.make_node("Transpose", inputs, outputs, perm=laid.perm))
                continue
            origin = base.nodes[laid.origin]
            if laid.bodies:
                node = onnx.NodeProto()
                node.CopyFrom(origin.lean)
                graphs = {one.name: one for one in node.attribute if one.name in BODIES}
                attributes = [graphs[name] for name in BODIES if name in graphs]
                for attribute, body, inner in zip(attributes, origin.bodies, laid.bodies, strict=True):
                    own = _inner_names(body, inner.graph, {a: names[b] for a, b in inner.captured})
                    written = _Written(body.graph, inner.graph, own)
                    attribute.g.CopyFrom(written.body(inner.formal, attribute.g))
            else:
                node = renamed(base._settled(origin.lean), outer)  # bodies too
            node.input[:], node.output[:] = inputs, outputs
            nodes.append(node)
        return nodes

    def _end(self, number: int) -> onnx.ValueInfoProto:
        kind = self._form.kind(number, self._base.type_of)
        proto = kind.to_proto() if kind is not None else onnx.TypeProto()
        return helper.make_value_info(self._names[number], proto)

    def _known_types(self, ends: Iterable[int]) -> list[onnx.ValueInfoProto]:
        """Of what is made: the model's file may say more than can be inferred again."""
        seen = set(ends)
        made = [one for laid in self._form.nodes for one in laid.makes if one not in seen]
        kinds = {one: self._form.kind(one, self._base.type_of) for one in made}
        return [
            helper.make_value_info(self._names[one], kind.to_proto())
            for one, kind in kinds.items()
            if kind is not None
        ]


def _check_size(count: int) -> None:
    if count >= MOST_SERIALISED:
        raise NotLaidOut("The model has more weights than one file of ONNX can hold.")


def _names(base: ModelGraph, form: LaidOutForm) -> list[str]:
    """The model's own where a value lies as it does there; what leaves it has the output's."""
    names = [one.prefix + base.names[one.value] for one in form.values]
    for wanted, number in zip(base.output_names, form.outputs, strict=True):
        if names[number] != wanted:
            if number in form.inputs or names[number] in base.output_names or wanted in names:
                raise NotLaidOut(f"The model's output '{wanted}' is another of its values.")
            names[number] = wanted
    if len(set(names)) < len(names):
        raise NotLaidOut("Names of the model's values look like those of laid-out ones.")
    return names


def _inner_names(body: GraphBody, form: LaidOutForm, captured: Mapping[int, str]) -> list[str]:
    """Of a body: what it captures is called as it is around it."""
    return [
        captured.get(number, one.prefix + body.graph.names[one.value])
        for number, one in enumerate(form.values)
    ]


def _is_as_said(graph: ModelGraph, form: LaidOutForm) -> bool:
    """Whether nodes and values have the form's numbers, in bodies too."""
    found = [(node.inputs, node.outputs, node.captured) for node in graph.nodes]
    if found != [(node.inputs, node.outputs, node.captured) for node in form.nodes]:
        return False
    if (graph.inputs, graph.outputs) != (form.inputs, form.outputs):
        return False
    return all(
        len(node.bodies) == len(laid.bodies)
        and all(
            (body.formal, body.captured) == (inner.formal, inner.captured)
            and _is_as_said(body.graph, inner.graph)
            for body, inner in zip(node.bodies, laid.bodies, strict=True)
        )
        for node, laid in zip(graph.nodes, form.nodes, strict=True)
        if laid.bodies
    )


def _take_keys(graph: ModelGraph, base: ModelGraph, form: LaidOutForm) -> None:
    """Bodies are told by the keys of those that they were made of."""
    for node, laid in zip(graph.nodes, form.nodes, strict=True):
        for which, inner in enumerate(laid.bodies):
            own, theirs = node.bodies[which].graph, base.nodes[laid.origin].bodies[which].graph
            own.key = theirs.key
            _take_keys(own, theirs, inner.graph)
