"""What became of the graphs that PyTorch handed over: ``opatlas.torch_report()``. PURE."""

from __future__ import annotations

from dataclasses import dataclass, field

from opatlas.plan.line_up import TimedInTurns


@dataclass
class GraphReport:
    """One graph. ``nodes``: calls of operators in it; ``operators``: distinct ones of the catalogue's kind,
    of which ``known`` have a kernel; ``replaced``: calls that run by kernels. ``chosen`` says who runs it;
    ``frameworks`` has PyTorch's own ways, compared with the first, ``standings`` the best of them and what
    has kernels, compared with that best; ``left_out``: contenders that took
    no part, and why. ``why``: the reason where the graph is PyTorch's without a contest. ``compile_s``:
    seconds until it could run; ``remembered``: what was chosen was known from an earlier time."""

    name: str
    nodes: int = 0
    operators: int = 0
    known: int = 0
    replaced: int = 0
    chosen: str = ""
    why: str = ""
    compile_s: float = 0.0
    remembered: bool = False
    frameworks: tuple[TimedInTurns, ...] = ()
    standings: tuple[TimedInTurns, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    unmapped: dict[str, int] = field(default_factory=dict)
    packed: int = 0
    """How often weights were packed (with ``freeze``)."""
    held: int = 0
    """On how many sizes what was left to Inductor gave what PyTorch eager gives."""

    def __str__(self) -> str:
        time = f"{self.compile_s:.1f} s, {'warm' if self.remembered else 'cold'}"
        if self.why:
            return f"{self.name}: {self.chosen} ({self.why}; {time})"
        counts = f"{self.replaced} of {self.nodes} calls by kernels; {self.known} of {self.operators} known"
        return f"{self.name}: {self.chosen} ({counts}; {time})"


@dataclass
class TorchReport:
    """All graphs so far, in order, and ``breaks``: why PyTorch cut models into several, with how often."""

    graphs: list[GraphReport] = field(default_factory=list)
    breaks: dict[str, int] = field(default_factory=dict)

    @property
    def known(self) -> int:
        return sum(graph.known for graph in self.graphs)

    @property
    def replaced(self) -> int:
        return sum(graph.replaced for graph in self.graphs)

    @property
    def compile_s(self) -> float:
        return sum(graph.compile_s for graph in self.graphs)

    def __str__(self) -> str:
        lines = [str(graph) for graph in self.graphs]
        lines += [f"graph break, {count} ×: {reason}" for reason, count in self.breaks.items()]
        return "\n".join(lines)
