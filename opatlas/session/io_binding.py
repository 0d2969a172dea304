"""What of ``onnxruntime.InferenceSession`` is around a run: what inputs and outputs are called, bindings, a
model's metadata, and the options that users pass. What cannot be followed is refused with a sentence."""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from opatlas.errors import CallerError
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import concrete
from opatlas.load.kernel import KernelFailed
from opatlas.plan.direct import Direct

log = logging.getLogger("opatlas")
PROVIDER = "CPUExecutionProvider"


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
    """What a model says of itself, under ONNX Runtime's names."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: onnx.ModelProto) -> ModelMeta:
        """As the file has it."""
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
    """A model's constants that a run may be given too."""
    given = {one.name for one in graph.model.graph.input} - set(graph.input_names)
    return [NodeArg(name, graph.proto_of(name)) for name in sorted(given)]


def check_providers(providers: Sequence[Any] | None) -> None:
    """A session runs on the processor. Another provider is passed over where ONNX Runtime, as it is
    installed, would pass it over too; :class:`CallerError` where it would run there."""
    names = [one if isinstance(one, str) else one[0] for one in providers or (PROVIDER,)]
    there = set(ort.get_available_providers()) - {PROVIDER}
    if PROVIDER not in names or there.intersection(names):
        raise CallerError(f"A session runs by {PROVIDER}, not by {', '.join(map(str, names))}.")
    if len(names) > 1:
        others = ", ".join(one for one in names if one != PROVIDER)
        log.warning("ONNX Runtime has no %s here: the session runs by %s.", others, PROVIDER)


def threads_of(options: Any) -> int | None:
    """The threads that ONNX Runtime's options ask for, if any; its other options change how it computes, not
    what, and are ours to choose. Raises :class:`CallerError` for those that ask for a file."""
    if options is None:
        return None
    if options.enable_profiling:
        raise CallerError("A session writes no profile: Session.breakdown says where the time goes.")
    if options.optimized_model_filepath:
        raise CallerError("A session writes no optimised model; ONNX Runtime's own does.")
    return options.intra_op_num_threads or None


def as_array(value: Any) -> Any:
    """An array out of ONNX Runtime's value; anything else as it is."""
    if not isinstance(value, ort.OrtValue):
        return value
    if not value.is_tensor() or value.device_name().lower() != "cpu":
        raise CallerError(f"An OrtValue must be a tensor on the CPU, not {value.data_type()}.")
    return value.numpy()


def as_value(array: Any) -> Any:
    """ONNX Runtime's value of an output."""
    if not isinstance(array, np.ndarray) or array.dtype.kind in "OSU":
        raise CallerError("Outputs that are no tensors of numbers are given by run, not as OrtValues.")
    return ort.OrtValue.ortvalue_from_numpy(array)


class _Runs(Protocol):
    graph: ModelGraph


class IOBinding:
    """As ONNX Runtime's, on the CPU: inputs and outputs tied by name."""

    def __init__(self, session: _Runs) -> None:
        self._names = session.graph.output_names
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._made: dict[str, Any] = {}
        self._keep: dict[str, Any] = {}
        self._direct: tuple[Any, Callable[[], None] | None] = (None, None)  # whose, and None where it cannot

    def bind_cpu_input(self, name: str, array: np.ndarray) -> None:
        self._bind(self._inputs, name, array)

    def _bind(self, ends: dict[str, Any], name: str, array: np.ndarray | None) -> None:
        ends[name] = array
        self._direct = (None, None)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Read from ``buffer_ptr`` by each run."""
        _on_cpu("Inputs", device_type)
        self._bind(self._inputs, name, _at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Read from the value's own memory by each run."""
        as_array(ortvalue)
        self._keep[f"in {name}"] = ortvalue
        shape, pointer = ortvalue.shape(), ortvalue.data_ptr()
        self._bind(self._inputs, name, _at(pointer, ortvalue.element_type(), shape))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Written to ``buffer_ptr`` (with ``element_type`` and ``shape``) by each run; a new array for each
        unless it is given."""
        if name not in self._names:
            raise CallerError(f"The model has no output {name!r}; it has {', '.join(self._names)}.")
        _on_cpu("Outputs", device_type)
        if buffer_ptr is None:
            self._bind(self._outputs, name, None)
            return
        if element_type is None or shape is None:
            raise CallerError("An output that is bound to a buffer needs its element type and shape.")
        self._bind(self._outputs, name, _at(buffer_ptr, element_type, shape))

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Written into the value's own memory by each run."""
        as_array(ortvalue)
        self._keep[f"out {name}"] = ortvalue
        element, shape = ortvalue.element_type(), ortvalue.shape()
        self.bind_output(name, "cpu", 0, element, shape, ortvalue.data_ptr())

    def get_outputs(self) -> list[Any]:
        """Those bound, in the order in which they were, as ONNX Runtime's values."""
        return [as_value(self._made[name]) for name in self._outputs]

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """Those bound, in the order in which they were."""
        return [self._made[name] for name in self._outputs]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()
        self._direct = (None, None)

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._direct = (None, None)

    def synchronize_inputs(self) -> None:
        """Nothing runs beside the caller on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing runs beside the caller on the CPU."""

    def _run_by(self, direct: Direct) -> bool:
        """Whether the framework ran straight over what is bound; tied to it once."""
        whose, call = self._direct
        if whose is not direct:
            call = direct.bind(self._inputs, self._outputs)
            self._direct = (direct, call)
        if call is None:
            return False
        try:
            call()
        except KernelFailed:
            return False
        self._made.update(self._outputs)
        return True

    def _take(self, made: Sequence[Any]) -> None:
        by_name = dict(zip(self._names, made, strict=True))
        for name, array in self._outputs.items():
            if array is not None:
                check = by_name[name]
                if (array.dtype, array.shape) != (check.dtype, check.shape):
                    raise CallerError(
                        f"Output '{name}' is {check.dtype} {list(check.shape)}; its buffer is for "
                        f"{array.dtype} {list(array.shape)}."
                    )
                array[...] = check
            self._made[name] = by_name[name] if array is None else array

    def _bound(self) -> dict[str, Any]:
        """What the last run made of what is bound, by name."""
        return {name: self._made[name] for name in self._outputs}

    def _put(self, made: Mapping[str, Any]) -> None:
        """Where these are others than were made, into what is bound."""
        if any(one is not self._made[name] for name, one in made.items()):
            self._take([made.get(name, self._made.get(name)) for name in self._names])


def _on_cpu(what: str, device_type: str) -> None:
    if device_type.lower() != "cpu":
        raise CallerError(f"{what} are bound on the device 'cpu', not on {device_type!r}.")


def _at(pointer: int, element_type: Any, shape: Sequence[int]) -> np.ndarray:
    """The memory there as an array. ``element_type``: NumPy's or ONNX's number."""
    is_number = isinstance(element_type, int)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type) if is_number else element_type)
    memory: Any = (ctypes.c_char * (dtype.itemsize * math.prod(shape))).from_address(pointer)
    return np.frombuffer(memory, dtype).reshape(shape)
