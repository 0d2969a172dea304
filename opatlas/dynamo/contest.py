"""Who runs a graph: PyTorch eager, ``torch.compile``, or either with kernels of the catalogue in some places.

What PyTorch offers is timed first; whatever has kernels in it runs only where it is faster than the best of
that beyond what is called a difference, on the inputs that the graph was compiled with.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from opatlas.client.answer import Answer
from opatlas.client.cache.store import digest_of
from opatlas.client.client import Client
from opatlas.dynamo.aten import AtenGraph
from opatlas.dynamo.compared import NodesCompared, as_traced
from opatlas.dynamo.inductor import compiled, compiled_aten
from opatlas.dynamo.kernels import KernelSite, SharedKernel, with_kernels
from opatlas.dynamo.limits import TryTookTooLong, compilers_end, within
from opatlas.dynamo.operators import NodeOperator, read_node, weights_of
from opatlas.dynamo.options import BackendOptions
from opatlas.dynamo.outcome import Call, are_same, outcome, random_state_kept
from opatlas.dynamo.planned import FusedCalls, fused_calls
from opatlas.dynamo.report import GraphReport
from opatlas.dynamo.weights import inputs_of_graph
from opatlas.errors import OpatlasError, first_line
from opatlas.noise import MARGIN
from opatlas.plan.line_up import LEAST_ROUNDS, UNDECIDED, WARMING, TimedInTurns, line_up

log = logging.getLogger("opatlas")
SHARES = (1.0, 0.5, 0.25)
"""Of the kernels that promise to be faster, the most promising: so many are tried together."""
KINDS = ("c-abi",)
"""Artifacts that run in a graph: a library's call would run beside PyTorch's own threads."""
PROFILED_RUNS = 3
LABELS = {"eager": "PyTorch eager", "inductor": "torch.compile"}

LEAST_RUNS = WARMING + 2 * LEAST_ROUNDS
"""of each that is timed in turns."""
MOST_IN_TURN = 16
"""Runs of a turn where each is given copies: few enough for what they weigh."""


@dataclass
class GraphWay:
    """One way to run the graph, called as Dynamo calls it. ``rest``: the framework of what is no kernel's;
    ``first_s``: seconds of its first run."""

    said: str
    call: Call
    rest: str
    sites: Mapping[str, KernelSite] = field(default_factory=dict)
    first_s: float = 0.0


@dataclass(frozen=True)
class ChosenWay:
    """Who runs it, and the framework that does where a kernel may not any more."""

    winner: GraphWay
    framework: Call


class Contest:
    """Of one graph. ``place``: target and setting, by their keys."""

    def __init__(
        self,
        module: fx.GraphModule,
        aten: AtenGraph,
        client: Client,
        place: tuple[str, str],
        options: BackendOptions,
        report: GraphReport,
    ) -> None:
        self._module, self._aten, self._client = module, aten, client
        self._options, self._report, self._place = options, report, place
        self._left_running = False
        self._weights = weights_of(aten.module.graph, aten.parameters if options.freeze else ())
        self._operators = self._read()
        self._answers = self._look_up()
        self._fused = self._planned() if options.plan and not client.offline else {}

    def hold(self) -> ChosenWay:
        """Raises what the graph raises in PyTorch eager."""
        with random_state_kept(), compilers_end(self._options.limit_s):
            kept = self._remembered()
            if kept is not None and (chosen := self._again(kept)) is not None:
                self._report.remembered = True
                return self._told(chosen)
            return self._told(self._held())

    def _held(self) -> ChosenWay:
        expected = self._outcome(self._module.forward)
        frameworks = [one for name in self._options.frameworks if (one := self._sound(name, {}, expected))]
        if not frameworks:
            frameworks = [GraphWay(LABELS["eager"], self._module.forward, "eager")]
        if self._is_slow(frameworks):
            best = self._by_one_run(frameworks)
            return ChosenWay(best, best.call)
        best = self._fastest(frameworks)
        tried = list(self._with_kernels(frameworks, expected))
        winner = self._better(best, tried)
        for contender in tried if not self._left_running else ():
            for name, site in contender.sites.items():
                if name not in winner.sites:
                    site.close()
        self._remember(winner)
        return ChosenWay(winner, best.call)

    def _fastest(self, frameworks: Sequence[GraphWay]) -> GraphWay:
        if len(frameworks) == 1:
            return frameworks[0]
        times = self._timed(frameworks)
        self._report.frameworks = tuple(times.values())
        return min(frameworks, key=lambda one: times[one.said].median_us if one.said in times else math.inf)

    def _better(self, best: GraphWay, tried: Sequence[GraphWay]) -> GraphWay:
        """Whoever is faster than the best framework beyond what is called a difference, or that one."""
        if not tried:
            return best
        standings = self._timed([best, *tried])
        self._report.standings = tuple(standings.values())
        ratios = {one.said: standings[one.said].ratios for one in tried if one.said in standings}
        better = [one for one in tried if one.said in ratios and ratios[one.said].low > 1 + MARGIN]
        return max(better, key=lambda one: ratios[one.said].ratio) if better else best

    def _is_slow(self, contenders: Sequence[GraphWay]) -> bool:
        """Whether turns would take longer than a first run may."""
        return LEAST_RUNS * math.fsum(one.first_s for one in contenders) > self._options.limit_s

    def _by_one_run(self, frameworks: Sequence[GraphWay]) -> GraphWay:
        """The first, unless another is faster by more than a busy host makes of it."""
        times = {one.said: self._seconds(one.call) for one in frameworks}
        best = min(frameworks, key=lambda one: times[one.said])
        first = frameworks[0]
        self._left_out("turns", f"a run takes {times[first.said]:.1f} s: each was timed once")
        return best if times[first.said] > UNDECIDED * times[best.said] else first

    def _seconds(self, call: Call) -> float:
        inputs = self._aten.example()
        start = time.perf_counter()
        with inputs_of_graph(inputs):
            call(*inputs)
        return time.perf_counter() - start

    # ---- what is known ------------------------------------------------------------------------------

    def _read(self) -> dict[str, NodeOperator]:
        found: dict[str, NodeOperator] = {}
        unmapped = self._report.unmapped
        for node in self._aten.calls:
            read = read_node(node, self._weights)
            if isinstance(read, str):
                unmapped[read] = unmapped.get(read, 0) + 1
            else:
                found[node.name] = read
        self._report.nodes = len(self._aten.calls)
        return found

    def _look_up(self) -> dict[str, Answer]:
        """Kernels that are known, by operator; what is not known is written down by the service, and
        explored."""
        operators = {one.operator.key: one.operator for one in self._operators.values()}
        answers = self._client.lookup_all(list(operators.values()), wait_s=self._options.wait_s)
        known = {one.key: one for one in answers if _runs_here(one)}
        self._report.operators, self._report.known = len(operators), len(known)
        return known

    def _planned(self) -> dict[str, FusedCalls]:
        """What the service's plan fuses, as far as there is a kernel of it, by the name of the last call."""
        try:
            found = fused_calls(self._aten, self._operators, self._weights, self._client)
        except OpatlasError as error:
            self._left_out("the service's plan", error)
            return {}
        operators = {one.read.operator.key: one.read.operator for one in found}
        answers = self._client.lookup_all(list(operators.values()), wait_s=self._options.wait_s)
        self._answers |= {one.key: one for one in answers if _runs_here(one)}
        return {one.nodes[-1].name: one for one in found if one.read.operator.key in self._answers}

    def _promising(self) -> list[str]:
        """Nodes whose kernel takes less than PyTorch takes for them in place, the most promising first; a
        fused one by the name of its last."""
        within = {node.name for one in self._fused.values() for node in one.nodes}
        known = {
            name: [name]
            for name, one in self._operators.items()
            if one.operator.key in self._answers and name not in within
        }
        known |= {name: [node.name for node in one.nodes] for name, one in self._fused.items()}
        if not known:
            return []
        times, gains = times_in_place(self._aten), {}
        for name, parts in known.items():
            best = self._answers[self._read_of(name).operator.key].best or {}
            gains[name] = math.fsum(times[part] for part in parts) - best["median_us"]
        return sorted((name for name, gain in gains.items() if gain > 0), key=lambda name: -gains[name])

    def _read_of(self, name: str) -> NodeOperator:
        return self._fused[name].read if name in self._fused else self._operators[name]

    def _sites(self, names: Sequence[str]) -> dict[str, KernelSite]:
        """Kernels in the places of these nodes that load, and make what PyTorch makes there."""
        shared: dict[str, SharedKernel] = {}
        nodes = {node.name: node for node in self._aten.calls}
        sites = {}
        for name in names:
            if name not in self._operators:
                continue
            read = self._read_of(name)
            key = read.operator.key
            if key not in self._answers:
                continue
            try:
                kernel = shared.get(key) or self._loaded(self._answers[key])
            except Exception as error:
                self._left_out(str(nodes[name].target), error)
                continue
            if not read.operator.constant_inputs:  # packed weights are a node's own
                shared[key] = kernel
            inner = self._fused[name].nodes[:-1] if name in self._fused else ()
            sites[name] = KernelSite(nodes[name], read, kernel, self._weights, inner)
        if not sites:
            return {}
        comparison = NodesCompared(self._aten.module, sites)
        try:
            within(self._options.limit_s, lambda: comparison.run(*self._aten.example()))
        except TryTookTooLong as error:
            self._left_running = True
            self._left_out(str(nodes[comparison.at].target) if comparison.at else "kernels", error)
            return {}
        for name, why in comparison.wrong.items():
            self._left_out(str(nodes[name].target), why)
            sites.pop(name).close()
        return sites

    def _loaded(self, answer: Answer) -> SharedKernel:
        assert answer.best is not None
        return SharedKernel(self._client.load(answer), answer.best["artifact"])

    # ---- contenders ---------------------------------------------------------------------------------

    def _with_kernels(self, frameworks: Sequence[GraphWay], expected: Sequence[Any]) -> Iterator[GraphWay]:
        sites = self._sites(self._promising())
        counts = dict.fromkeys(max(1, round(share * len(sites))) for share in SHARES) if sites else {}
        for count in counts:
            some = dict(list(sites.items())[:count])
            for framework in frameworks:
                if self._left_running:
                    return  # it may hold a kernel for good
                if (one := self._sound(framework.rest, some, expected)) is not None:
                    yield one

    def _sound(self, rest: str, sites: Mapping[str, KernelSite], expected: Sequence[Any]) -> GraphWay | None:
        """The contender, if it can be built and gives what PyTorch eager gives."""
        said = f"{len(sites)} kernels in {LABELS[rest]}" if sites else LABELS[rest]
        try:
            way, found = within(self._options.limit_s, lambda: self._first_run(said, rest, sites))
            if are_same(found, expected):
                return way
            self._left_out(said, "it gives other values than PyTorch eager")
        except Exception as error:
            self._left_running |= bool(sites) and isinstance(error, TryTookTooLong)
            self._left_out(said, error)
        return None

    def _first_run(self, said: str, rest: str, sites: Mapping[str, KernelSite]) -> tuple[GraphWay, list[Any]]:
        call = self._build(rest, sites)
        start = time.perf_counter()
        found = self._outcome(call)
        return GraphWay(said, call, rest, dict(sites), time.perf_counter() - start), found

    def _build(self, rest: str, sites: Mapping[str, KernelSite]) -> Call:
        if not sites:
            return self._module.forward if rest == "eager" else compiled(self._module, self._aten.inputs)
        module = with_kernels(self._aten.module, sites, as_operators=rest == "inductor")
        if rest == "eager":
            return self._aten.run_by(_listed(module.forward))
        return self._aten.run_by(_listed(compiled_aten(module, self._aten.example())))

    def _outcome(self, call: Call) -> list[Any]:
        return outcome(call, self._aten.inputs, self._aten.written)

    def _timed(self, contenders: Sequence[GraphWay]) -> dict[str, TimedInTurns]:
        """For half of the seconds. What is written to is copied for each run, whose cost all pay alike."""
        seconds, inputs, written = self._options.try_s / 2, self._aten.example(), self._aten.written
        given = self._aten.example if written else lambda: inputs
        bounds = {"most_in_turn": MOST_IN_TURN} if written else {}
        with inputs_of_graph(inputs):
            return line_up({one.said: _run(one.call, given) for one in contenders}, seconds, **bounds)

    def _left_out(self, said: str, why: Exception | str) -> None:
        sentence = why if isinstance(why, str) else first_line(why)
        self._report.left_out[said] = sentence
        log.info("%s takes no part: %s", said, sentence)

    # ---- what was chosen before ---------------------------------------------------------------------

    def _name(self) -> bytes:
        artifacts = sorted(one.best["artifact"] for one in self._answers.values() if one.best)
        about = [self._options.freeze, list(self._options.frameworks), str(torch.__version__)]
        about += [sorted(one.read.operator.key for one in self._fused.values())] if self._fused else []
        return digest_of(["torch graph", self._aten.digest(), *self._place, artifacts, about])

    def _remembered(self) -> Mapping[str, Any] | None:
        store = self._client.store
        return store.fact(self._name()) if store is not None else None

    def _remember(self, winner: GraphWay) -> None:
        if self._client.store is None:
            return
        if self._is_undecided():
            log.warning("Too busy a host to say what runs a graph fastest: asked again next time.")
        else:
            self._client.store.keep_fact(self._name(), {"rest": winner.rest, "nodes": list(winner.sites)})

    def _is_undecided(self) -> bool:
        """Of frameworks the faster one runs by however little, so that it may be either side."""
        sides = [(one.ratios.low, one.ratios.ratio) for one in self._report.standings]
        for one in self._report.frameworks:
            sides += [(one.ratios.low, one.ratios.ratio), (1 / one.ratios.high, 1 / one.ratios.ratio)]
        return any(low <= 1 and ratio > UNDECIDED for low, ratio in sides)

    def _again(self, kept: Mapping[str, Any]) -> ChosenWay | None:
        """What was chosen for this graph with these kernels, if it still does as PyTorch does."""
        rest, nodes = kept.get("rest"), kept.get("nodes")
        if rest not in self._options.frameworks or not isinstance(nodes, list):
            return None
        sites = self._sites([name for name in nodes if isinstance(name, str)]) if nodes else {}
        if len(sites) < len(nodes):
            return None
        contender = self._sound(rest, sites, self._outcome(self._module.forward))
        return None if contender is None else ChosenWay(contender, self._module.forward)

    def _told(self, chosen: ChosenWay) -> ChosenWay:
        sites = chosen.winner.sites.values()
        self._report.chosen = chosen.winner.said
        self._report.replaced = sum(1 + len(site.inner) for site in sites)
        return chosen


def _listed(call: Call) -> Callable[[list[Any]], Any]:
    """Given a list that it empties, so that nobody holds what the graph does not need any more."""

    def run(args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return call(*given)

    return run


def _run(call: Call, inputs: Callable[[], Sequence[Any]]) -> Callable[[], object]:
    return lambda: call(*inputs())


def _runs_here(answer: Answer) -> bool:
    return answer.best is not None and answer.best.get("kind") in KINDS and answer.from_neighbour is None


def times_in_place(aten: AtenGraph) -> dict[str, float]:
    """Microseconds that PyTorch eager takes for each node where it stands; of some runs, without the first
    one."""
    profile = _Profile(aten.module)
    for _ in range(1 + PROFILED_RUNS):
        profile.run(*aten.example())
    return {name: statistics.median(times[1:]) for name, times in profile.times.items()}


class _Profile(fx.Interpreter):
    """Microseconds of each node where it stands, run after run."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.times: dict[str, list[float]] = {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with as_traced():
            return super().run(*args, **kwargs)

    def run_node(self, n: fx.Node) -> Any:
        start = time.perf_counter_ns()
        made = super().run_node(n)
        self.times.setdefault(n.name, []).append((time.perf_counter_ns() - start) / 1e3)
        return made
