"""PyTorch's aten calls as canonical ONNX: one small function per operator, in one file per family."""

from opatlas.graph.aten.builder import CannotMap, Mapped
from opatlas.graph.aten.record import CallRecord, TensorArgument, read_record
from opatlas.graph.aten.registry import FAMILIES, RULES, map_aten

__all__ = [
    "FAMILIES",
    "RULES",
    "CallRecord",
    "CannotMap",
    "Mapped",
    "TensorArgument",
    "map_aten",
    "read_record",
]
