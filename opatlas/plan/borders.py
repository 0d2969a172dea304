"""What a plan's region borders cost in layout changes. PURE.

ONNX Runtime runs float32 convolutions and poolings in blocks of channels (NCHWc) if the channels fill whole
blocks. Element-wise nodes accept and keep blocks. Where a plan cuts the model between two such nodes, values
are converted from blocks to the plain layout and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onnx import TensorProto

from opatlas.graph.linked import Linked
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import ModelStructure
from opatlas.graph.types import TensorType
from opatlas.plan.plan import ByKernel, PlanStep

IN_BLOCKS = frozenset(
    ("Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Resize", "Upsample")
)
"""Operators that ONNX Runtime may run in blocks of channels."""
HANDING_ON = frozenset(
    ("Add", "BatchNormalization", "Clip", "Concat", "HardSigmoid", "LeakyRelu", "Mul", "Relu", "Sigmoid",
     "Sum", "Tanh")
)  # fmt: skip
"""Operators that accept blocks and keep them."""
BLOCK = 8
"""The number of channels must be a multiple of this; on wider processors, of twice as many."""
BYTES = 4
"""Bytes of a number: only float32 runs in blocks."""


@dataclass(frozen=True)
class Borders:
    """The borders of one model or body. ``blocked``: values that ONNX Runtime holds in blocks if it runs
    everything, with their size in bytes. Outputs are not among them: they are converted in any case."""

    nodes: Sequence[Linked]
    blocked: Mapping[int, int]

    @classmethod
    def of_graph(cls, graph: ModelGraph) -> Borders:
        types = [node.proto.op_type for node in graph.nodes]
        return cls._of(graph.nodes, types, graph.outputs, graph.type_of, graph.is_constant)

    @classmethod
    def of_structure(cls, one: ModelStructure) -> Borders:
        types = [node.op_type for node in one.nodes]
        return cls._of(one.nodes, types, one.outputs, one.types.__getitem__, one.constants.__contains__)

    @classmethod
    def _of(
        cls,
        nodes: Sequence[Linked],
        op_types: Sequence[str],
        outputs: Sequence[int],
        type_of: Callable[[int], TensorType | None],
        is_constant: Callable[[int], bool],
    ) -> Borders:
        blocked = dict[int, int]()
        for node, op_type in zip(nodes, op_types, strict=True):
            read = [one for one in node.reads if not is_constant(one)]
            hands_on = op_type in HANDING_ON and bool(read) and blocked.keys() >= set(read)
            for value in node.makes if op_type in IN_BLOCKS or hands_on else ():
                kind = type_of(value)
                if kind is not None and _comes_out_even(kind):
                    blocked[value] = BYTES * kind.size
        for value in outputs:
            blocked.pop(value, None)
        return cls(nodes, blocked)

    def bytes_of(self, step: PlanStep) -> int:
        """Bytes that a region converts at its two ends."""
        makes = frozenset().union(*(self.nodes[node].makes for node in step.nodes))
        reads = frozenset().union(*(self.nodes[node].reads for node in step.nodes)) - makes
        return sum(self.blocked.get(value, 0) for value in (*reads, *step.outputs))

    def reordered(self, steps: Sequence[PlanStep]) -> list[int]:
        """Bytes converted around each kernel, by step, if all steps run in one session of ONNX Runtime. Each
        value counts once; between two kernels nothing is converted."""
        by_kernel = [isinstance(step.by, ByKernel) and not step.by.layout for step in steps]
        made_by = {value: is_kernel for step, is_kernel in zip(steps, by_kernel, strict=True)
                   for node in step.nodes for value in self.nodes[node].makes}  # fmt: skip
        read_by_others = {value for step, is_kernel in zip(steps, by_kernel, strict=True) if not is_kernel
                          for node in step.nodes for value in self.nodes[node].reads}  # fmt: skip
        seen, found = set[int](), []
        for step, is_kernel in zip(steps, by_kernel, strict=True):
            ends = set[int]()
            if is_kernel:
                reads = frozenset().union(*(self.nodes[node].reads for node in step.nodes))
                ends |= {value for value in reads if made_by.get(value) is False}
                ends |= {value for value in step.outputs if value in read_by_others}
            found.append(sum(self.blocked.get(value, 0) for value in ends - seen))
            seen |= ends
        return found


def _comes_out_even(kind: TensorType) -> bool:
    return kind.element == TensorProto.FLOAT and len(kind.shape) == 4 and kind.shape[1] % BLOCK == 0
