"""An operator's identity: a canonical ONNX graph and the key made of it.

Data only. How a caller's graph becomes canonical is :mod:`opatlas.identity.canonical`'s business; how JSON
and ONNX bytes are read, with their bounds, is :mod:`opatlas.identity.parse`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

Role = Literal["runtime", "const"]

KEY_VERSION = "o1"
OPSET = 23
"""The one ONNX opset in which every operator is kept (operators change meaning between opsets)."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that an operator reads.

    ``shape`` and ``strides`` are in elements; ``strides`` is None where the layout is row-major and dense.
    ``role`` says whether the values are known before the first run (``const``: weights) or come with every
    run. ``data`` holds the values, flat and row-major, only where they shape the computation (the ``shape``
    of a Reshape, the ``axes`` of a ReduceSum); such a value is no tensor that is passed at run time.
    """

    dtype: str
    shape: tuple[int, ...]
    role: Role = "runtime"
    strides: tuple[int, ...] | None = None
    data: tuple[int | float | bool | str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX node. ``inputs`` and ``outputs`` are value numbers (-1: an optional input left out).

    ``attrs`` are sorted (name, JSON value) pairs, every default that matters made explicit.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    domain: str = ""

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.attrs)


@dataclass(frozen=True)
class Operator:
    """A canonical ONNX graph with concrete shapes, dtypes and layouts.

    Values are numbered: the inputs first (0 … n-1), then every node's outputs in order. ``outputs`` names
    the values that leave the operator; ``produced`` gives dtype and shape of every value a node makes, in
    order, so that value ``i`` is ``inputs[i]`` or ``produced[i - len(inputs)]``.
    """

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    produced: tuple[Value, ...]

    @cached_property
    def key(self) -> str:
        """``o1:`` and the SHA-256 of the canonical JSON, in hexadecimal."""
        return digest_key(KEY_VERSION, self.to_json())

    @property
    def op_types(self) -> tuple[str, ...]:
        return tuple(node.op for node in self.nodes)

    def value(self, number: int) -> Value:
        return self.inputs[number] if number < len(self.inputs) else self.produced[number - len(self.inputs)]

    @property
    def output_values(self) -> tuple[Value, ...]:
        return tuple(self.value(number) for number in self.outputs)

    @property
    def tensor_inputs(self) -> tuple[int, ...]:
        """Numbers of the inputs that are tensors at run time or constants (not those with ``data``)."""
        return tuple(i for i, value in enumerate(self.inputs) if value.data is None)

    @property
    def runtime_inputs(self) -> tuple[int, ...]:
        return tuple(i for i in self.tensor_inputs if self.inputs[i].role == "runtime")

    @property
    def constant_inputs(self) -> tuple[int, ...]:
        return tuple(i for i in self.tensor_inputs if self.inputs[i].role == "const")

    def to_json(self) -> dict[str, Any]:
        """The canonical form as plain JSON: what the key is made of, what REST and manifests carry."""
        return {
            "opset": OPSET,
            "inputs": [_value_to_json(value) for value in self.inputs],
            "nodes": [
                {
                    "op": node.op,
                    **({"domain": node.domain} if node.domain else {}),
                    "inputs": list(node.inputs),
                    "outputs": list(node.outputs),
                    "attrs": dict(node.attrs),
                }
                for node in self.nodes
            ],
            "outputs": list(self.outputs),
            "produced": [_value_to_json(value) for value in self.produced],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Operator:
        """Read back what :meth:`to_json` wrote. Trusts its input: for a caller's JSON use ``parse``."""
        return cls(
            inputs=tuple(_value_from_json(value) for value in document["inputs"]),
            nodes=tuple(
                Node(
                    op=node["op"],
                    domain=node.get("domain", ""),
                    inputs=tuple(node["inputs"]),
                    outputs=tuple(node["outputs"]),
                    attrs=tuple(
                        sorted(
                            (name, _attribute(node["op"], name, value))
                            for name, value in node["attrs"].items()
                        )
                    ),
                )
                for node in document["nodes"]
            ),
            outputs=tuple(document["outputs"]),
            produced=tuple(_value_from_json(value) for value in document["produced"]),
        )


def canonical_json(document: Any) -> bytes:
    """JSON with sorted keys and no spaces: equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=True).encode()


def digest_key(version: str, document: Any) -> str:
    """``version:`` and the SHA-256 of the document's canonical JSON."""
    return f"{version}:{hashlib.sha256(canonical_json(document)).hexdigest()}"


def _attribute(op: str, name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        if len(value) == 3 and isinstance(value[1], list | tuple):  # a tensor: dtype, shape, values
            return value[0], tuple(value[1]), tuple(_element(item, value[0]) for item in value[2])
        return tuple(_attribute(op, name, item) for item in value)
    if isinstance(value, int) and abs(value) >= _FIRST_WHOLE:
        # PostgreSQL's jsonb writes 1e+16 as 10000000000000000, which Python reads as an integer.
        from opatlas.identity import schema  # needs ONNX, which who only reads keys does not wait for

        attribute = schema.find(op, OPSET)
        kind = attribute.attributes[name].kind if attribute and name in attribute.attributes else ""
        return float(value) if kind.startswith("FLOAT") else value
    return value


_FIRST_WHOLE = 10**16
"""From here on Python writes a float with an exponent, and other writers of JSON as an integer."""


def _value_to_json(value: Value) -> dict[str, Any]:
    document: dict[str, Any] = {"dtype": value.dtype, "shape": list(value.shape), "role": value.role}
    if value.strides is not None:
        document["strides"] = list(value.strides)
    if value.data is not None:
        document["data"] = list(value.data)
    return document


def _element(value: Any, dtype: str) -> Any:
    return float(value) if "float" in dtype and isinstance(value, int) else value


def _value_from_json(document: Mapping[str, Any]) -> Value:
    strides, data = document.get("strides"), document.get("data")
    return Value(
        dtype=document["dtype"],
        shape=tuple(document["shape"]),
        role=document["role"],
        strides=None if strides is None else tuple(strides),
        data=None if data is None else tuple(_element(item, document["dtype"]) for item in data),
    )
