"""Chooses what runs a model: frameworks and plans with kernels are timed in turns, and the fastest wins."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from opatlas.errors import LoadError, first_line
from opatlas.evidence import Ratios
from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import BorderCosts
from opatlas.graph.types import TensorType
from opatlas.graph.weights import weight_bytes
from opatlas.inside.blocks import block_size
from opatlas.memory import lacking
from opatlas.noise import MARGIN
from opatlas.plan.compiling import compile_ahead
from opatlas.plan.cuts import worth_their_cuts
from opatlas.plan.exactness import why_inexact
from opatlas.plan.executor import Executor
from opatlas.plan.fusing import with_fusions
from opatlas.plan.held_to import HeldTo
from opatlas.plan.limits import within
from opatlas.plan.line_up import TimedInTurns, line_up
from opatlas.plan.making import NodeChoice, kernels_in, whole, with_kernels
from opatlas.plan.plan import (
    BLOCKS,
    FRAMEWORKS,
    IN_PLACE,
    ONE,
    RESTING,
    Alternative,
    ByFramework,
    ByKernel,
    ModelPlan,
)
from opatlas.plan.predicting import Costs, costs, foretold_us, is_short, predicted
from opatlas.plan.profiling import Feed, node_times
from opatlas.plan.regions import COMPILED, DEFAULT, LABELS, is_installed
from opatlas.plan.said import WHOLE, said_of
from opatlas.plan.saturating import CutOff, cut_off_products, has_fed_products
from opatlas.plan.semantics.taking_part import Admission
from opatlas.plan.streaming import STREAMS, could_pay, node_streams
from opatlas.plan.trying import DIFFERS_FROM_EXACT, LOADING_S, Build, DefaultRun, ExampleCheck

log = logging.getLogger("opatlas")
SHARES = (1.0, 0.5, 0.25)
"""Try plans with this share of the kernels that promise to be faster, the most promising first."""
OTHERS = FRAMEWORKS[1:]
"""Frameworks in which a model is tried beside the default."""
COPIES = 3
"""Copies of the weights while a framework loads a model: as read, as it lays them out, and its own."""
COMPILED_S = 10.0
"""The least time for loading what a compiler has made in time."""
FIRST_RUN_S = 15.0
"""The time for the default's first run over the example."""
Fewer = Callable[[int], Mapping[NodeAt, NodeChoice]]
"""The known kernels for so many threads, fewer than the model's."""
Exact = Callable[[], Sequence[np.ndarray] | None]
"""The model's outputs in float64; None if they cannot be computed."""


@dataclass(frozen=True)
class Chosen:
    """What runs, and all that were tried, the default first. ``refused``: frameworks that took no part, and
    why; ``of_given``: the standings that are the given plan's, in one stream or several; ``inexact``: why the
    given plan errs too much to run; ``default_differs``: exact values were asked for, and the default gives
    others."""

    executor: Executor
    standings: tuple[TimedInTurns, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    of_given: frozenset[str] = frozenset()
    inexact: str = ""
    default_differs: bool = False

    @property
    def plan(self) -> ModelPlan:
        return self.executor.plan


def choose(
    graph: ModelGraph,
    choices: Mapping[NodeAt, NodeChoice],
    place: tuple[str, str],
    build: Build,
    feed: Feed,
    threads: int,
    seconds: float,
    *,
    frameworks: Sequence[str] = (),
    loading_s: float = LOADING_S,
    given: ModelPlan | None = None,
    fused: Sequence[NodeChoice] = (),
    fewer: Fewer = lambda _: {},
    exact: Exact = lambda: None,
    examples: Sequence[Feed] = (),
    wants_exact: bool = False,
    first_run_s: float = FIRST_RUN_S,
) -> Chosen:
    """The fastest of: the whole model in each framework, and plans with more or fewer of these kernels. They
    are timed in turns for about so many ``seconds``.

    ``place``: keys of target and setting. ``frameworks``: tried beside the default if they are installed. A
    ``given`` plan (checked) takes part instead of plans made here. ``fused``: kernels of several nodes; those
    that save most take part as well. ``fewer`` is called only if streams, which share the threads, could pay.

    Every candidate must give the default's outputs, and wins only if :func:`is_better` says so: nobody gets a
    wrong or a slower model. The given plan must also err no more than allowed against ``exact``.
    ``wants_exact``: candidates must give exact values, even if the default does not; otherwise products whose
    sums the default cuts off (:mod:`opatlas.plan.saturating`) stay with the default.

    Raises what the default raises over ``feed``, and :class:`opatlas.plan.limits.TookTooLong` if its first
    run does not end within ``first_run_s``.
    """
    contest = _Contest(graph, place, build, feed, examples, first_run_s, exact if wants_exact else None)
    if not graph.is_random:  # two runs of which may differ: nobody could tell a wrong plan
        contest.add_frameworks(frameworks, threads, loading_s)
        if given is not None:
            contest.add_given(given, threads, fewer)
        else:
            contest.add_plans(choices, fused, threads, fewer)
    runs = {name: _run(executor, feed) for name, executor in contest.executors.items()}
    standings = line_up(runs, seconds) if len(runs) > 1 else {}
    better = [
        one
        for name, one in standings.items()
        if name != WHOLE and (contest.default_differs or is_better(one.ratios, contest.executors[name].plan))
    ]
    better.sort(key=lambda one: -one.ratios.ratio)
    best = next((one.said for one in better if contest.may_run(one.said, exact)), WHOLE)
    for name, executor in contest.executors.items():
        if name != best:
            executor.close()
    told = {name: contest.executors[name].plan.predicted_us for name in standings}
    return Chosen(
        contest.executors[best],
        tuple(replace(one, predicted_us=told[name]) for name, one in standings.items()),
        contest.refused,
        frozenset(contest.of_given),
        contest.inexact,
        contest.default_differs,
    )


def is_better(ratios: Ratios, plan: ModelPlan) -> bool:
    """Whether a plan shall run instead of the default. ``ratios``: how many times as fast it is. For a plan
    of several parts the whole interval must be above 1 by the margin. For a whole model in another framework
    the ratio must be, and the interval may reach below 1 by no more than the margin: staying would more often
    be the slower choice."""
    if len(plan.steps) == 1 and isinstance(plan.steps[0].by, ByFramework):
        return ratios.ratio > 1 + MARGIN and ratios.low > 1 - MARGIN
    return ratios.low > 1 + MARGIN


class _Contest:
    """The candidates: executors by label, each with a predicted time, none timed yet."""

    def __init__(
        self,
        graph: ModelGraph,
        place: tuple[str, str],
        build: Build,
        feed: Feed,
        examples: Sequence[Feed],
        first_run_s: float,
        truth: Exact | None,
    ) -> None:
        """``truth``: the outputs to expect instead of the default's, if they can be computed."""
        self._graph, self._place, self._build, self._feed = graph, place, build, feed
        default = build(whole(graph, *place))
        found = DefaultRun.of(default, feed, first_run_s)
        self.executors = {WHOLE: default}
        self.refused: dict[str, str] = {}
        self.of_given: set[str] = set()
        self.inexact = ""
        try:
            self._default_us = _foretold(default, feed)
            self._admission = Admission(graph.unlaid)
            cut_off = cut_off_products(graph)
            if truth is not None:  # nobody can be held against a default that is not exact either
                examples = () if cut_off and has_fed_products(graph) else examples
                cut_off = CutOff()
            held_to = HeldTo(default, feed, examples, first_run_s)
            self._trial = ExampleCheck(graph, build, feed, found, cut_off, held_to, self._admission)
            if truth is not None and self._trial.expect(truth()):
                self.refused[LABELS[DEFAULT]] = DIFFERS_FROM_EXACT
        except Exception:
            default.close()
            raise

    @property
    def default_differs(self) -> bool:
        """Whether the default differs from the exact values that were asked for."""
        return self._trial.expects_other

    def add_frameworks(self, frameworks: Sequence[str], threads: int, loading_s: float) -> None:
        """Add the whole model in each framework that accepts it, within so many seconds in all."""
        end = time.perf_counter() + loading_s
        for framework in frameworks:
            if framework == DEFAULT or not is_installed(framework):
                continue
            try:
                plan = by_framework(whole(self._graph, *self._place), framework)
                self._trial.check(plan)
                if (left_s := end - time.perf_counter()) <= 0:
                    raise LoadError(f"{loading_s:.0f} s were for loading frameworks, and are over")
                if reason := lacking(COPIES * weight_bytes(self._graph.model)):
                    raise LoadError(reason)
                if framework in COMPILED:
                    compile_ahead(framework, self._graph, threads, left_s)
                left_s = end - time.perf_counter()
                if framework in COMPILED:  # what was compiled is loaded in seconds
                    left_s = max(left_s, COMPILED_S)
                executor = self._trial.sound(plan, left_s)
            except Exception as error:  # whatever a framework raises while it loads or runs
                self.refused[LABELS[framework]] = first_line(error)
                continue
            _foretold(executor, self._feed)
            self.executors[said_of(executor.plan)] = executor

    def add_plans(
        self,
        choices: Mapping[NodeAt, NodeChoice],
        fused: Sequence[NodeChoice],
        threads: int,
        fewer: Fewer = lambda _: {},
    ) -> None:
        """Add plans of kernels that promise to be faster in place, with the default for the rest. The same
        with fused kernels where these promise more. Of the most promising plan also: the rest in OpenVINO if
        that runs the whole model; other uses of threads in its regions; and several streams if enough of it,
        or of the whole model, can overlap. Plans with kernels inside one session of ONNX Runtime take part
        too."""
        choices = {at: one for at, one in choices.items() if self._trial.cut_off.allows(at)}
        fused = [one for one in fused if all(map(self._trial.cut_off.allows, one.fused))]
        streams = self._stream_counts(threads)
        choices = self._without_doubt(choices)
        fused = [one for one in fused if not any(map(self._admission.may_drop_nan, one.fused))]
        if not choices and not fused and not streams:
            return
        if (found := self._profiled(threads)) is None:
            return
        times, known = found
        promising = _promising(choices, times)
        joined = with_fusions(promising, fused, times)
        alone = self._worth(promising, times, known)
        both = alone if joined == promising else self._worth(joined, times, known)
        plans = _plans(self._graph, both, times, self._place) if both != alone else []
        plans += _plans(self._graph, alone, times, self._place)
        if plans and any(one.startswith(LABELS["openvino"]) for one in self.executors):
            plans.append(by_framework(plans[0], "openvino"))
        if plans:
            plans += other_threading(plans[0], known, threads)
        # What a kernel takes alone says little of it there, so a profile of all of them decides. They are
        # made first, though they stand behind the others: memory may do for few plans of a large model.
        covered = {node for one in joined.values() for node in one.fused}
        every = joined | {at: one for at, one in choices.items() if at not in joined and at not in covered}
        inside = self._add_inside(choices, fused, every, times, known)
        for plan in plans:
            self.add(predicted(plan, known))
        if inside is not None:
            self.executors[said_of(inside)] = self.executors.pop(said_of(inside))
        for plan in self._all_in_streams(streams, threads, both, times, fewer):
            self.add(predicted(plan, known))

    def _add_inside(
        self,
        choices: Mapping[NodeAt, NodeChoice],
        fused: Sequence[NodeChoice],
        every: Mapping[NodeAt, NodeChoice],
        times: Mapping[NodeAt, float],
        known: Costs,
    ) -> ModelPlan | None:
        """In one session of ONNX Runtime: in blocks of channels where such a plan is sound, else plain. Gives
        the plan that takes part, if one does."""
        plan = self._add_in_blocks(choices, fused, every, times, known)
        if plan is None or not any(by.layout for by in plan.kernels):
            return self._add_plain(every, times, known) or plan
        return plan

    def _add_plain(
        self, kernels: Mapping[NodeAt, NodeChoice], times: Mapping[NodeAt, float], known: Costs
    ) -> ModelPlan | None:
        """All in one session of ONNX Runtime, with the kernels that pay for what is brought out of blocks of
        channels for them."""
        reorders = BorderCosts(0.0, known.us_per_mib)

        def worth(chosen: Mapping[NodeAt, NodeChoice]) -> dict[NodeAt, NodeChoice]:
            left = (self._graph, chosen, lambda node: times.get(node, 0.0), known.borders, reorders)
            return worth_their_cuts(*left)

        return self._add_paying(kernels, times, known, worth)

    def _add_in_blocks(
        self,
        choices: Mapping[NodeAt, NodeChoice],
        fused: Sequence[NodeChoice],
        every: Mapping[NodeAt, NodeChoice],
        times: Mapping[NodeAt, float],
        known: Costs,
    ) -> ModelPlan | None:
        """All in one session of ONNX Runtime, with convolutions that read and write its blocks of channels;
        which of them can, only they know. Beside them ``every`` kernel for other nodes."""
        block, found = block_size(), dict[NodeAt, NodeChoice]()
        if not block:
            return None
        taken = set[int]()
        own = (((at,), one) for at, one in choices.items() if isinstance(at, int))
        joined = sorted(((one.fused, one) for one in fused), key=lambda pair: -len(pair[0]))
        for nodes, one in (*joined, *own):
            if taken.isdisjoint(nodes) and self._may_be_in_blocks(nodes, block):
                found[nodes[-1]] = replace(one, by=replace(one.by, layout=BLOCKS))
                taken.update(nodes)
        if not found:
            return None
        others = {
            at: one
            for at, one in every.items()
            if not isinstance(at, int) or taken.isdisjoint(one.fused or (at,))
        }

        def faster(chosen: Mapping[NodeAt, NodeChoice]) -> dict[NodeAt, NodeChoice]:
            return {
                at: one
                for at, one in chosen.items()
                if not isinstance(at, int)
                or one.median_us < math.fsum(times.get(node, 0.0) for node in one.fused or (at,))
            }

        return self._add_paying(others | found, times, known, faster)

    def _may_be_in_blocks(self, nodes: Sequence[int], block: int) -> bool:
        """A convolution, with what may follow it, whose channels fill whole blocks."""
        kind, *after = (self._graph.nodes[node].proto.op_type for node in nodes)
        if kind != "Conv" or after not in ([], ["Relu"], ["Add"], ["Add", "Relu"]):
            return False
        ends = (self._graph.nodes[nodes[0]].inputs[0], self._graph.nodes[nodes[-1]].outputs[0])
        return all(_is_even(self._graph.type_of(value), block) for value in ends)

    def _add_paying(
        self,
        kernels: Mapping[NodeAt, NodeChoice],
        times: Mapping[NodeAt, float],
        known: Costs,
        paying: Callable[[Mapping[NodeAt, NodeChoice]], dict[NodeAt, NodeChoice]],
    ) -> ModelPlan | None:
        """Add a plan in ONNX Runtime with the kernels that pay, by a profile of all of them in place. Returns
        the plan that takes part, if one does."""
        if not kernels or not (plan := self._inside(kernels, times)).kernels:
            return None
        try:
            taken, runs = self._profiled_inside(plan)
        except Exception as error:  # whatever a profile shows or hides
            log.warning("No kernels inside ONNX Runtime are tried: %s", first_line(error))
            return None
        taken = {node: known.unprofiled * us for node, us in taken.items()}
        steps = {one.nodes[-1]: one.nodes for one in plan.steps if one.by in runs}
        measured = dict[NodeAt, NodeChoice]()
        for at, one in kernels.items():
            if not isinstance(at, int):
                measured[at] = one
            elif at in steps:
                measured[at] = replace(one, median_us=self._in_place_us(steps[at], taken, times))
        found = paying(measured)

        def gain(at: NodeAt) -> float:
            theirs = (times.get(node, 0.0) for node in found[at].fused or (at,))
            return math.fsum(theirs) - found[at].median_us if isinstance(at, int) else math.inf

        kept = {at: replace(found[at], median_us=max(found[at].median_us, 0.0))
                for at in sorted(found, key=gain, reverse=True)}  # fmt: skip
        for share in SHARES:  # fewer, where all of them together are not sound
            some = dict(list(kept.items())[: max(1, round(share * len(kept)))])
            plan = predicted(self._inside(some, times), known)
            if plan.kernels and self.add(plan) is not None:
                return plan
        return None

    def _profiled_inside(self, plan: ModelPlan) -> tuple[dict[int, float], set[ByKernel]]:
        """The time of each node in place, whoever runs it, and the kernels that ran."""
        executor = within(LOADING_S, lambda: self._build(plan), Executor.close, "load")
        try:
            taken = within(LOADING_S, lambda: executor.node_times(self._feed), lambda _: executor.close())
            return taken, set(executor.kernels)
        finally:
            executor.close()

    def _in_place_us(
        self, nodes: Sequence[int], taken: Mapping[int, float], times: Mapping[NodeAt, float]
    ) -> float:
        """The time of a kernel for its nodes by a profile (``taken``). If ONNX Runtime would fuse them into a
        neighbour, what that takes more than in ``times`` is added."""
        us = sum(taken.get(node, 0.0) for node in nodes)
        if any(times.get(node, 0.0) for node in nodes):
            return us
        ends = [self._graph.nodes[node] for node in nodes]
        made = frozenset().union(*(one.makes for one in ends))
        read = frozenset().union(*(one.reads for one in ends)) - made
        beside = (
            number
            for number, one in enumerate(self._graph.nodes)
            if number not in nodes and (not read.isdisjoint(one.makes) or not made.isdisjoint(one.reads))
        )
        return us + sum(taken.get(one, 0.0) - times.get(one, 0.0) for one in beside)

    def _inside(self, kernels: Mapping[NodeAt, NodeChoice], times: Mapping[NodeAt, float]) -> ModelPlan:
        return replace(with_kernels(self._graph, kernels, *self._place, times), inside=DEFAULT)

    def add_given(self, given: ModelPlan, threads: int, fewer: Fewer) -> None:
        """As it is; unless it has streams or is of one session already, also in several streams, where enough
        of it can overlap, and with its kernels inside one session of ONNX Runtime."""
        self.add(given)
        self.of_given.add(said_of(given))
        is_simple = given.stream_count == 1 and not given.nhwc and not given.inside
        streams = self._stream_counts(threads) if is_simple else []
        kernels = dict[NodeAt, NodeChoice](kernels_in(given).items()) if is_simple else {}
        if not (streams or kernels) or (found := self._profiled(threads)) is None:
            return
        times, known = found
        alone = {at: one for at, one in kernels.items() if not one.fused}
        fused = [one for one in kernels.values() if one.fused]
        if (inside := self._add_inside(alone, fused, kernels, times, known)) is not None:
            self.of_given.add(said_of(inside))
        for plan in self._all_in_streams(streams, threads, kernels, times, fewer):
            self.add(predicted(plan, known))
            self.of_given.add(said_of(plan))

    def may_run(self, said: str, exact: Exact) -> bool:
        """Whether a plan errs no more than allowed, as far as that can be told; only the given plan is
        checked."""
        executor = self.executors[said]
        if said in self.of_given and executor.plan.kernels and (outputs := exact()) is not None:
            self.inexact = why_inexact(executor.run(self._feed), self._trial.found.outputs, outputs)
            if self.inexact:
                log.warning("A plan of %s does not run: %s", said, self.inexact)
                return False
        return True

    def _without_doubt(self, choices: Mapping[NodeAt, NodeChoice]) -> dict[NodeAt, NodeChoice]:
        """The kernels, without those for nodes in which NaN may get lost. Nothing is known of nodes in
        bodies."""
        return {
            at: one
            for at, one in choices.items()
            if not (isinstance(at, int) and self._admission.may_drop_nan(at))
        }

    def _stream_counts(self, threads: int) -> list[int]:
        is_wide = could_pay(self._graph, self._default_us)
        return [count for count in STREAMS if is_wide and count <= threads]

    def _worth(
        self, kernels: Mapping[NodeAt, NodeChoice], times: Mapping[NodeAt, float], known: Costs
    ) -> dict[NodeAt, NodeChoice]:
        """The kernels that pay for the cuts they make. If none does by the measured costs, all of them: the
        line-up decides."""
        kept = worth_their_cuts(
            self._graph, kernels, lambda node: times.get(node, 0.0), known.borders, known.border_costs()
        )
        return kept or dict(kernels)

    def _profiled(self, threads: int) -> tuple[dict[NodeAt, float], Costs] | None:
        """The time of each node in place, and what else costs; None if that cannot be measured."""
        try:
            profiled = node_times(self._graph, self._feed, threads)
        except Exception as error:  # whatever a profile shows or hides: the whole model runs
            log.warning("No plan is tried, since the model could not be profiled: %s", first_line(error))
            return None
        arrays = (*self._feed.values(), *self._trial.found.outputs)
        copied = sum(one.nbytes for one in arrays if isinstance(one, np.ndarray))
        outer = {at: us for at, us in profiled.items() if isinstance(at, int)}
        known = costs(self._graph, outer, self._default_us, copied, threads)
        return profiled | dict[NodeAt, float](known.nodes.items()), known

    def _all_in_streams(
        self,
        counts: Sequence[int],
        threads: int,
        kernels: Mapping[int, NodeChoice] | Mapping[NodeAt, NodeChoice],
        times: Mapping[NodeAt, float],
        fewer: Fewer,
    ) -> list[ModelPlan]:
        if not could_pay(self._graph, self._default_us, times):
            return []
        plans = [
            self._in_streams(count, threads // count, dict[NodeAt, NodeChoice](kernels.items()), times, fewer)
            for count in counts
        ]
        return [plan for plan in plans if plan.stream_count > 1]

    def _in_streams(
        self,
        count: int,
        threads: int,
        promising: Mapping[NodeAt, NodeChoice],
        times: Mapping[NodeAt, float],
        fewer: Fewer,
    ) -> ModelPlan:
        """The plan in streams with so many ``threads`` each. Nodes are placed by their times on as many
        threads, and run by the kernels for as many; if none is known, by the promising ones for all
        threads."""
        try:
            times = {**times, **node_times(self._graph, self._feed, threads)}
        except Exception as error:
            log.warning("Streams are placed by times on all threads: %s", first_line(error))
        fused = {number for one in promising.values() for number in one.fused}
        known = {at: one for at, one in self._without_doubt(fewer(threads)).items() if at not in fused}
        others = {at: one for at, one in promising.items() if at not in known}
        placed = node_streams(self._graph, times, count)
        kernels = others | _promising(known, times)
        return with_kernels(self._graph, kernels, *self._place, times, placed)

    def add(self, plan: ModelPlan) -> Executor | None:
        """Add a plan. One that fails the checks is logged and left out; none takes part twice."""
        if (said := said_of(plan)) in self.executors:
            return None
        try:
            self.executors[said] = self._trial.sound(plan)
        except Exception as error:
            log.warning("A plan of %s takes no part: %s", said, first_line(error))
        return self.executors.get(said)


def _is_even(kind: TensorType | None, block: int) -> bool:
    """Whether a value's channels fill whole blocks."""
    return kind is not None and len(kind.shape) == 4 and kind.shape[1] % block == 0


def _foretold(executor: Executor, feed: Feed) -> float:
    """Time a run of a whole model in microseconds; this becomes the plan's prediction."""
    us = foretold_us(_run(executor, feed))
    [step] = executor.plan.steps
    executor.plan = replace(executor.plan, steps=(replace(step, predicted_us=us),))
    return us


def by_framework(plan: ModelPlan, framework: str) -> ModelPlan:
    """The plan with everything that no kernel runs left to this framework."""
    by = ByFramework(framework)
    steps = (replace(one, by=by) if isinstance(one.by, ByFramework) else one for one in plan.steps)
    return replace(plan, steps=tuple(steps))


def other_threading(plan: ModelPlan, known: Costs, threads: int) -> list[ModelPlan]:
    """The plan with other uses of threads: its regions' threads rest instead of sleep, and short regions have
    one thread. None if there is only one region of ONNX Runtime, or one thread."""
    regions = {at for at, step in enumerate(plan.steps) if step.by == ByFramework(DEFAULT)}
    short = {at for at in regions if is_short(plan.steps[at], known, threads)}
    if len(regions) < 2 or threads == 1:
        return []
    found = [_in_threading(plan, regions, RESTING)]
    return [*found, _in_threading(plan, short, ONE)] if short else found


def _in_threading(plan: ModelPlan, regions: Set[int], threading: str) -> ModelPlan:
    by = ByFramework(DEFAULT, threading)
    steps = (replace(step, by=by) if at in regions else step for at, step in enumerate(plan.steps))
    return replace(plan, steps=tuple(steps))


def _plans(
    graph: ModelGraph,
    promising: Mapping[NodeAt, NodeChoice],
    times: Mapping[NodeAt, float],
    place: tuple[str, str],
) -> list[ModelPlan]:
    found: dict[str, ModelPlan] = {}
    for share in SHARES if promising else ():
        some = dict(list(promising.items())[: max(1, round(share * len(promising)))])
        plan = with_kernels(graph, some, *place, times)
        if plan.kernels:
            found.setdefault(said_of(plan), plan)
    return list(found.values())


def _promising(
    choices: Mapping[NodeAt, NodeChoice], times: Mapping[NodeAt, float]
) -> dict[NodeAt, NodeChoice]:
    """Kernels that are faster than the default for their node, the most promising first."""
    gains = {number: times.get(number, 0.0) - one.median_us for number, one in choices.items()}
    order = sorted((number for number, gain in gains.items() if gain > 0), key=lambda number: -gains[number])
    return {
        number: replace(choices[number], over=(Alternative(IN_PLACE, times[number]),)) for number in order
    }


def _run(executor: Executor, feed: Feed) -> Callable[[], object]:
    """As a session runs it."""
    if (direct := executor.direct) is not None and direct.run(None, feed) is not None:
        return lambda: direct.run(None, feed)
    return lambda: executor.run(feed)
