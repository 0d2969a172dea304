"""The interface of ``onnxruntime.InferenceSession`` around a run: names of inputs and outputs, bindings, a
model's metadata."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from onnxruntime.capi import _pybind_state as C

from opatlas.errors import CallerError, first_line
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import concrete
from opatlas.load.kernel import KernelFailed
from opatlas.plan.arrays import dtype_of, has_array
from opatlas.plan.direct import Direct
from opatlas.session.instead import NotPlanned


class UnreadableValue(CallerError):
    """A value of ONNX Runtime that is no array in memory."""


class NodeArg:
    """An input or output of a session: ``name``, ``shape``, and ``type`` as ONNX Runtime writes it."""

    def __init__(self, name: str, proto: onnx.TypeProto | None) -> None:
        kind = concrete(proto)
        self.name = name
        self.shape = list(kind.shape) if kind is not None else []
        self.type = _written(proto)

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


def _written(proto: onnx.TypeProto | None) -> str:
    """``tensor(float)``, ``seq(tensor(int64))``."""
    what = proto.WhichOneof("value") if proto is not None else None
    if proto is None or what is None:
        return ""
    if what == "sequence_type":
        return f"seq({_written(proto.sequence_type.elem_type)})"
    if what == "optional_type":
        return f"optional({_written(proto.optional_type.elem_type)})"
    if what == "map_type":
        key = onnx.TensorProto.DataType.Name(proto.map_type.key_type).lower()
        return f"map({key},{_written(proto.map_type.value_type)})"
    named = proto.tensor_type if what == "tensor_type" else proto.sparse_tensor_type
    element = onnx.TensorProto.DataType.Name(named.elem_type).lower()
    return f"{'sparse_' * (what != 'tensor_type')}tensor({element})"


@dataclass(frozen=True)
class ModelMeta:
    """A model's metadata, under ONNX Runtime's names."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: onnx.ModelProto) -> ModelMeta:
        """The metadata in the model's file."""
        return cls(
            model.producer_name,
            model.graph.name,
            model.domain,
            model.doc_string,
            model.graph.doc_string,
            model.model_version,
            {entry.key: entry.value for entry in model.metadata_props},
        )


def overridable_initializers(graph: ModelGraph) -> list[NodeArg]:
    """A model's constants that a run may set too."""
    given = {one.name for one in graph.model.graph.input} - set(graph.input_names)
    return [NodeArg(name, graph.proto_of(name)) for name in sorted(given)]


def as_array(value: Any) -> Any:
    """An array from a value of ONNX Runtime; anything else unchanged."""
    if not isinstance(value, ort.OrtValue):
        return value
    if not value.is_tensor() or value.device_name().lower() != "cpu":
        raise UnreadableValue(f"An OrtValue must be a tensor on the CPU, not {value.data_type()}.")
    return value.numpy()


def as_value(array: Any) -> Any:
    """A value of ONNX Runtime from an output."""
    if not isinstance(array, np.ndarray) or array.dtype.kind in "OSU":
        raise CallerError("Outputs that are no tensors of numbers are given by run, not as OrtValues.")
    return ort.OrtValue.ortvalue_from_numpy(array)


def gives_arrays(graph: ModelGraph) -> bool:
    """Whether all outputs are tensors of types that NumPy has, so that they can become ONNX Runtime's
    values."""
    kinds = [graph.walk.types.get(name) for name in graph.output_names]
    return all(kind is not None and has_array(kind) and dtype_of(kind).kind in "biuf" for kind in kinds)


class _Runs(Protocol):
    graph: ModelGraph

    def _plainly(self, kind: str, why: str) -> ort.InferenceSession: ...


class IOBinding:
    """Like ONNX Runtime's, on the CPU: inputs and outputs bound by name. What the plan's run does not take
    goes to ONNX Runtime's own binding, which runs or refuses it."""

    def __init__(self, session: _Runs) -> None:
        self._session = session
        self._names = session.graph.output_names
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._made: dict[str, Any] = {}
        # What ONNX Runtime would be told, by end and name: a method, and what it is given behind the name.
        self._calls: dict[tuple[str, str], tuple[str, tuple[Any, ...]]] = {}
        self._foreign: set[tuple[str, str]] = set()  # what of it no plan takes
        self._theirs: ort.IOBinding | None = None  # ONNX Runtime's own of what is bound
        self._ran: ort.IOBinding | None = None  # the same, where the last run was its
        self._direct: tuple[Any, Callable[[], None] | None] = (None, None)  # whose, and None where it cannot

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        self._bind(self._inputs, name, lambda: _an_array(arr_on_cpu), "bind_cpu_input", arr_on_cpu)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Each run reads from ``buffer_ptr``."""
        given = (device_type, device_id, element_type, shape, buffer_ptr)
        self._bind(self._inputs, name, lambda: _placed(*given), "bind_input", *given)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Each run reads from the value's own memory."""
        self._bind(self._inputs, name, lambda: _memory_of(ortvalue), "bind_ortvalue_input", ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Each run writes to ``buffer_ptr`` (with ``element_type`` and ``shape``), or to a new array if it is
        not given."""
        given = (device_type, device_id, element_type, shape, buffer_ptr)
        self._bind(self._outputs, name, lambda: _placed(*given), "bind_output", *given)

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Each run writes into the value's own memory."""
        self._bind(self._outputs, name, lambda: _memory_of(ortvalue), "bind_ortvalue_output", ortvalue)

    def _bind(
        self,
        ends: dict[str, Any],
        name: str,
        place: Callable[[], np.ndarray | None],
        method: str,
        *given: Any,
    ) -> None:
        """``place``: the memory as an array, None for a new one. If there can be no array, ONNX Runtime is
        asked at once, so that it refuses what it does not accept."""
        end = ("in" if ends is self._inputs else "out", name)
        self._calls[end] = (method, given)
        self._foreign.discard(end)
        self._direct, self._theirs = (None, None), None
        try:
            if ends is self._inputs and name not in self._session.graph.input_names:
                raise CallerError(f"a plan has no input {name!r}")
            ends[name] = place()
        except Exception as error:  # whatever is raised over an element type or value that nobody knows
            ends[name] = None
            self._foreign.add(end)
            self._bind_theirs(end, ends, first_line(error))

    def _bind_theirs(self, end: tuple[str, str], ends: dict[str, Any], why: str) -> None:
        try:
            self._bound_by(
                self._session._plainly("binding", f"What is bound to {end[1]!r} is no plan's: {why}")
            )
        except Exception:
            del self._calls[end], ends[end[1]]
            self._foreign.discard(end)
            raise

    def get_outputs(self) -> list[Any]:
        """The bound outputs in the order of binding, as ONNX Runtime's values."""
        if (theirs := self._asked()) is not None:
            return list(theirs.get_outputs())
        return [as_value(self._made[name]) for name in self._outputs]

    def get_outputs_as_ortvaluevector(self) -> Any:
        """The same as ONNX Runtime's list."""
        if (theirs := self._asked()) is not None:
            return theirs.get_outputs_as_ortvaluevector()
        values = C.OrtValueVector()
        self._given_out = self.get_outputs()  # whose memory the list's values are
        for value in self._given_out:
            values.push_back(value._ortvalue)
        return values

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """The bound outputs in the order of binding."""
        if (theirs := self._asked()) is not None:
            return list(theirs.copy_outputs_to_cpu())
        return [self._made[name] for name in self._outputs]

    def _asked(self) -> ort.IOBinding | None:
        """ONNX Runtime's binding, if it has the outputs: of the last run, or before any."""
        if self._ran is None and not self._outputs.keys() <= self._made.keys():
            return self._bound_by(self._session._plainly("binding", "Outputs are asked for before a run."))
        return self._ran

    def clear_binding_inputs(self) -> None:
        self._clear("in", self._inputs)

    def clear_binding_outputs(self) -> None:
        self._clear("out", self._outputs)
        self._ran = None

    def _clear(self, which: str, ends: dict[str, Any]) -> None:
        ends.clear()
        for end in [end for end in self._calls if end[0] == which]:
            del self._calls[end]
            self._foreign.discard(end)
        self._direct, self._theirs = (None, None), None

    def synchronize_inputs(self) -> None:
        """Nothing runs beside the caller on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing runs beside the caller on the CPU."""

    def _run_by(self, direct: Direct) -> bool:
        """Whether the framework ran directly over the bound memory; bound to it once."""
        whose, call = self._direct
        if whose is not direct:
            call = direct.bind(self._inputs, self._outputs) if not self._why_foreign() else None
            self._direct = (direct, call)
        if call is None:
            return False
        try:
            call()
        except KernelFailed:
            return False
        self._made.update(self._outputs)
        self._ran = None
        return True

    def _why_foreign(self) -> str:
        """Why no plan can run over what is bound; empty if one can."""
        if self._foreign:
            return "Something is bound that no plan takes."
        unknown = [name for name in self._outputs if name not in self._names]
        return (
            f"The model has no output '{unknown[0]}'."
            if unknown
            else "No output is bound." * (not self._outputs)
        )

    def _run_planned(self, run: Callable[..., list[Any]], run_options: Any) -> None:
        """One run by the plan. Raises :class:`NotPlanned` for what it does not take, with nothing written."""
        if run_options is not None or (why := self._why_foreign()):
            raise NotPlanned("A run is given run options." if run_options is not None else why)
        made = dict(zip(self._outputs, run(list(self._outputs), self._inputs), strict=True))
        if why := self._misfit(made):
            raise NotPlanned(why)
        for name, place in self._outputs.items():
            if place is not None:
                place[...] = made[name]
            self._made[name] = made[name] if place is None else place
        self._ran = None

    def _misfit(self, made: Mapping[str, Any]) -> str:
        """Why these outputs do not fit where they are bound; empty if they do."""
        for name, place in self._outputs.items():
            value = made[name]
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
                return f"Output '{name}' is no tensor of numbers."
            found = (value.dtype, value.shape)
            if place is not None and (place.dtype, place.shape) != found:
                return f"Output '{name}' is {found[0]} {list(found[1])}; its buffer is for another."
        return ""

    def _run_plainly(self, session: ort.InferenceSession, run_options: Any = None) -> None:
        """One run over the bound memory in ONNX Runtime itself."""
        theirs = self._bound_by(session)
        session.run_with_iobinding(theirs, run_options)
        self._ran = theirs

    def _bound_by(self, session: ort.InferenceSession) -> ort.IOBinding:
        """ONNX Runtime's own binding of the same memory."""
        if self._theirs is None or self._theirs._session is not session._sess:
            made = session.io_binding()
            for (_, name), (method, given) in self._calls.items():
                getattr(made, method)(name, *given)
            self._theirs = made
        return self._theirs

    def _bound(self) -> dict[str, Any]:
        """The last run's bound outputs by name."""
        return {name: self._made[name] for name in self._outputs}

    def _put(self, made: Mapping[str, Any]) -> None:
        """Copy these outputs into the bound memory, if they are not there. Raises :class:`NotPlanned`."""
        if why := self._misfit(made):
            raise NotPlanned(why)
        for name, value in made.items():
            if value is not self._made[name] and (place := self._outputs[name]) is not None:
                place[...] = value
            elif value is not self._made[name]:
                self._made[name] = value


def _an_array(given: Any) -> np.ndarray:
    if not isinstance(given, np.ndarray):
        raise CallerError(f"{type(given).__name__} is no array")
    return given


def _placed(
    device_type: str, device_id: int, element_type: Any, shape: Sequence[int] | None, buffer_ptr: int | None
) -> np.ndarray | None:
    """The memory as an array; None if ONNX Runtime would make some. ``element_type``: NumPy's or ONNX's
    number."""
    if device_type.lower() != "cpu":
        raise CallerError(f"a plan binds on the device 'cpu', not on {device_type!r}")
    if buffer_ptr is None:
        return None
    if element_type is None or shape is None:
        raise CallerError("a buffer needs its element type and shape")
    return _at(buffer_ptr, element_type, shape)


def _memory_of(ortvalue: Any) -> np.ndarray:
    as_array(ortvalue)
    return _at(ortvalue.data_ptr(), ortvalue.element_type(), ortvalue.shape())


def _at(pointer: int, element_type: Any, shape: Sequence[int]) -> np.ndarray:
    is_number = isinstance(element_type, int)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type) if is_number else element_type)
    if dtype.kind not in "biufV":
        raise CallerError(f"{dtype} does not lie in memory")
    memory: Any = (ctypes.c_char * (dtype.itemsize * math.prod(shape))).from_address(pointer)
    return np.frombuffer(memory, dtype).reshape(shape)
