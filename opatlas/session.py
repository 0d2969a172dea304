"""A model as ``onnxruntime.InferenceSession`` runs it, with the catalogue's kernels where they are faster in
place: ``opatlas.Session("model.onnx").run(None, {"x": x})``."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from opatlas.client.answer import Answer
from opatlas.client.cache.store import digest_of
from opatlas.client.client import Client
from opatlas.client.loading.function import KernelFunction
from opatlas.client.machine import LIBRARIES, installed_versions
from opatlas.conf import conf
from opatlas.errors import CallerError, LoadError, OpatlasError
from opatlas.given_model import random_inputs, read_model
from opatlas.given_plan import GivenPlan, asked_plan, fused_operators, read_given
from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.identity.place.setting import Setting, default_setting
from opatlas.io_binding import (
    PROVIDER,
    IOBinding,
    ModelMeta,
    NodeArg,
    as_array,
    as_value,
    check_providers,
    threads_of,
)
from opatlas.plan.checking import check_plan
from opatlas.plan.choosing import OTHERS, WHOLE, choose, said_of, whole_said
from opatlas.plan.engines import Engines, EngineShare
from opatlas.plan.executor import Executor
from opatlas.plan.line_up import TimedInTurns, line_up
from opatlas.plan.making import DEFAULT, NodeChoice, whole
from opatlas.plan.plan import KERNEL_KINDS, ByFramework, ByKernel, InvalidPlan, ModelPlan
from opatlas.plan.profiling import PROFILED_RUNS, node_times, timeline_of_whole
from opatlas.plan.regions import LABELS, is_installed, open_session
from opatlas.streams.timeline import Timeline

log = logging.getLogger("opatlas")
ASK_S = 240.0
"""Between two questions for what runs: a service tells of what it revoked to those that ask."""
RIVAL = 0.8
"""Of the fastest's speed: a framework that did not reach it is not tried again with other kernels."""
UNDECIDED = 1.2
"""A ratio above this whose interval reaches below 1: the host was disturbed, and nothing of it is kept."""
TRY_S = 5.0
"""For timing plans against the whole model, once for a model on a machine."""


@dataclass(frozen=True)
class StepShare:
    """One step of a run: its nodes in words, who runs them, and microseconds: its own, and those that ONNX
    Runtime takes for these nodes."""

    nodes: str
    by: str
    us: float
    onnxruntime_us: float


class Session:
    """A model that runs by whatever is fastest on this machine, never slower than ONNX Runtime.

    ``model``: a file or its bytes. ``client`` (made from the configuration unless given) says what is known
    of its operators, in one request; what is not known is explored, so that a later session is faster. The
    first session of a model on a machine times the plans against ONNX Runtime with ``example`` (random values
    unless given) for ``try_s`` seconds; later ones remember. ``dims`` gives symbolic dimensions their sizes.
    ``frameworks``: those of :data:`opatlas.plan.choosing.OTHERS` that the model is tried in beside ONNX
    Runtime, as far as they are installed; ``OPATLAS_FRAMEWORKS`` unless given. ``plan``: one that takes
    part in place of those that would be made here (:func:`opatlas.given_plan.read_given`), timed each time;
    True: the service is asked for one of the model's simpler form (:mod:`opatlas.simplifying`), and where it
    gives none the session goes on as without.

    ``sess_options`` and ``providers`` are ONNX Runtime's: threads are taken from the one, and the other must
    mean the processor (:mod:`opatlas.io_binding`); ``provider_options`` are those of the processor's, which
    has none.

    Raises :class:`opatlas.errors.InvalidModel` for a model that cannot be read.
    """

    def __init__(
        self,
        model: str | Path | bytes,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        client: Client | None = None,
        dims: Mapping[str, int] | None = None,
        threads: int | None = None,
        example: Mapping[str, np.ndarray] | None = None,
        try_s: float = TRY_S,
        frameworks: Sequence[str] | None = None,
        plan: Any = None,
    ) -> None:
        check_providers(providers)
        threads = threads if threads is not None else threads_of(sess_options)
        self.graph = read_model(model, dims)
        self._own = client is None
        accepts = None if plan is None or plan is False else {"kinds": list(KERNEL_KINDS)}
        self._client = client or Client(setting=_setting(threads), accepts=accepts)
        setting = self._client.setting or default_setting(self._client.target)
        if threads is not None and threads != setting.threads:
            raise CallerError(f"The client's setting has {setting.threads} threads; {threads} are asked for.")
        self.threads = setting.threads
        self.place = (self._client.target.key, setting.key)
        self._ask_at = time.monotonic() + ASK_S
        self._answers: dict[str, Answer] = {}
        self._frameworks = tried_frameworks(conf().frameworks if frameworks is None else frameworks)
        self._given = self._read_plan(plan, lambda: self._simpler(dims, example))
        if self._given is not None:
            self.graph = self._given.graph
        choices = self.look_up()
        self.known = len(self._answers)
        self._share: EngineShare | None = None
        self.standings: tuple[TimedInTurns, ...] = ()
        self.refused: Mapping[str, str] = {}
        remembered = self._remembered(choices) if self._given is None else None
        self._executor = remembered or self._chosen(choices, example, try_s)

    @property
    def plan(self) -> ModelPlan:
        """What runs."""
        return self._executor.plan

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
        *,
        deadline_s: float = math.inf,
    ) -> list[np.ndarray]:
        """The outputs that are named (all: None), in that order; inputs are arrays, or ONNX Runtime's values
        on the CPU. ``run_options`` are ONNX Runtime's and change nothing here. ``deadline_s``: of a session
        that shares engines, by when the run has to end, or else ends with
        :class:`opatlas.plan.engines.DeadlinePassed`. Raises :class:`opatlas.errors.CallerError` for inputs
        that do not fit."""
        if self._share is None:
            if deadline_s < math.inf:
                raise CallerError(
                    "A deadline is of a session that shares engines: call share(engines) first."
                )
            direct = self._executor.direct
            if direct is not None and (made := direct.run(output_names, input_feed)) is not None:
                return made
        feed = {name: as_array(value) for name, value in input_feed.items()}
        made = self._executor.run(feed, self._share, deadline_s)
        if not output_names:
            return made
        by_name = dict(zip(self.graph.output_names, made, strict=True))
        if unknown := [name for name in output_names if name not in by_name]:
            raise CallerError(
                f"The model has no output {unknown[0]!r}; it has {', '.join(self.graph.output_names)}."
            )
        return [by_name[name] for name in output_names]

    def share(self, engines: Engines | None, name: str = "model", *, priority_s: float = 0.0) -> None:
        """Run on these engines from now on, in turns with the other models there; None: by itself again. An
        engine should have as many threads as the session. ``priority_s``: its steps go before what was placed
        up to so long before them, as far as the engines allow it."""
        self._share = None if engines is None else engines.share(name, priority_s)

    def get_inputs(self) -> list[NodeArg]:
        """What a run is given."""
        return [NodeArg(name, self.graph.proto_of(name)) for name in self.graph.input_names]

    def get_outputs(self) -> list[NodeArg]:
        """What a run gives."""
        return [NodeArg(name, self.graph.proto_of(name)) for name in self.graph.output_names]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Constants that a run may be given too."""
        given = {one.name for one in self.graph.model.graph.input} - set(self.graph.input_names)
        return [NodeArg(name, self.graph.proto_of(name)) for name in sorted(given)]

    def get_modelmeta(self) -> ModelMeta:
        """What the model says of itself."""
        return ModelMeta.of(self.graph.model)

    def get_providers(self) -> list[str]:
        """The processor's, whoever runs the model there."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {PROVIDER: {}}

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """As :meth:`run`, from and to ONNX Runtime's values."""
        return [as_value(one) for one in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """Inputs and outputs tied by name, for :meth:`run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, binding: IOBinding, run_options: Any = None) -> None:
        """One run over what is bound."""
        direct = self._executor.direct
        if direct is None or self._share is not None or not binding._run_by(direct):
            binding._take(self.run(None, binding._inputs))

    def breakdown(self, input_feed: Mapping[str, np.ndarray]) -> list[StepShare]:
        """Where the time goes: each step's, and what ONNX Runtime takes for the same nodes in the model."""
        times = node_times(self.graph, input_feed, self.threads)
        theirs = {at: us for at, us in times.items() if isinstance(at, int)}
        by = self.plan.steps[0].by
        if len(self.plan.steps) == 1 and by == DEFAULT:  # ONNX Runtime's own profile says more
            return [StepShare(self._label([one]), WHOLE, us, us) for one, us in theirs.items()]
        profiles = [self._executor.profile(input_feed) for _ in range(PROFILED_RUNS)]
        return [
            StepShare(
                self._label(step.nodes),
                LABELS[step.by.framework] if isinstance(step.by, ByFramework) else step.by.said,
                statistics.median(profile[at].us for profile in profiles),
                sum(theirs.get(number, 0.0) for number in step.nodes),
            )
            for at, step in enumerate(self.plan.steps)
        ]

    def timeline(self, input_feed: Mapping[str, np.ndarray]) -> Timeline:
        """One run as it was, by itself: streams as rows, kernels as boxes. Where ONNX Runtime runs the whole
        model, by its own profile. Of engines, :meth:`opatlas.plan.engines.Engines.timeline` has it."""
        by = self.plan.steps[0].by
        if len(self.plan.steps) == 1 and by == DEFAULT:
            return timeline_of_whole(self.graph, input_feed, self.threads)
        return self._executor.timeline(input_feed)

    def _label(self, nodes: Sequence[int]) -> str:
        """What people read of some nodes: the first's name, and how many there are."""
        proto = self.graph.nodes[nodes[0]].proto
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        return f"{proto.op_type} {proto.name or proto.output[0]}{more}"

    @property
    def peak_bytes(self) -> int:
        """Of the buffer that values between steps share; 0 where a framework runs the whole model."""
        return self._executor.peak_bytes

    def example(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Random inputs of the model's types: normal floats, small whole numbers, true."""
        return random_inputs(self.graph, seed)

    def close(self) -> None:
        """Let go of kernels, buffers and, where it is the session's own, the client."""
        self._executor.close()
        if self._own:
            self._client.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _chosen(
        self, choices: Mapping[NodeAt, NodeChoice], example: Mapping[str, np.ndarray] | None, try_s: float
    ) -> Executor:
        """What is fastest with the caller's example, which must fit, else with random values, if the model
        takes them."""
        try:
            feed = example if example is not None else self.example()
            chosen = choose(
                self.graph, choices, self.place, self._build, feed, self.threads, try_s,
                frameworks=self._rivals(), loading_s=conf().loading_s,
                given=None if self._given is None else self._given.plan,
            )  # fmt: skip
        except OpatlasError as error:
            if example is not None:
                raise
            log.warning("No plan is tried: random inputs do not fit the model (%s). Give an example.", error)
            return self._build(whole(self.graph, *self.place))
        self.standings, self.refused = chosen.standings, chosen.refused
        if self._given is None:
            self._remember(choices, chosen.plan)
        else:
            self._given.report(self._client, chosen.standings, said_of(chosen.plan))
        return chosen.executor

    # ---- a plan from elsewhere ----------------------------------------------------------------------

    def _read_plan(self, plan: Any, simpler: Callable[[], ModelGraph]) -> GivenPlan | None:
        if plan is None or plan is False:
            return None
        if plan is not True:
            return read_given(plan, self.graph, self.place, self._client, simpler)
        try:
            return asked_plan(self.graph, self.place, self._client, simpler)
        except OpatlasError as error:
            log.warning("There is no plan of the service: %s", error)
            return None

    def _simpler(
        self, dims: Mapping[str, int] | None, example: Mapping[str, np.ndarray] | None
    ) -> ModelGraph:
        """Its values are ONNX Runtime's of the model, over the example or random inputs."""
        from opatlas.simplifying import simplified_graph

        return simplified_graph(self.graph, dims, example or self.example(), self.threads)

    # ---- what is known ------------------------------------------------------------------------------

    def look_up(self) -> dict[NodeAt, NodeChoice]:
        """Of every node that is an operator, in bodies too: the kernel that is known for it, if it can run in
        a model. A given plan's operators of several nodes are looked up in the same request."""
        found = self.graph.operators()
        operators = {canonical.operator.key: canonical.operator for canonical, _ in found.values()}
        if self._given is not None:
            operators |= fused_operators(self._given.plan, self.graph)
        answers = self._client.lookup_all(list(operators.values()))
        self._answers = {answer.key: answer for answer in answers if _runs_here(answer)}
        choices: dict[NodeAt, NodeChoice] = {}
        for number, (canonical, tensors) in found.items():
            answer = self._answers.get(canonical.operator.key)
            if answer is None or answer.best is None:
                continue
            best = answer.best
            by = ByKernel(answer.key, best["artifact"], tensors, f"{best['route']} {best['label']}")
            choices[number] = NodeChoice(by, best["median_us"])
        return choices

    def _build(self, plan: ModelPlan) -> Executor:
        return Executor(self.graph, plan, self.load, threads=self.threads, revoked=self._revoked)

    def _revoked(self) -> frozenset[str]:
        """What must not run any more, as far as the machine was told; asked for now and then, beside the
        job."""
        if time.monotonic() > self._ask_at:
            self._ask_at = time.monotonic() + ASK_S
            self._client.refresh([by.operator for by in self.plan.kernels])
        return self._client.revoked

    def load(self, by: ByKernel) -> FunctionKernel:
        """The implementation that a step names, as the client verified it."""
        answer = self._answers.get(by.operator)
        if answer is None or answer.best is None or answer.best["artifact"] != by.artifact:
            raise LoadError("a lookup does not give this implementation now")
        return FunctionKernel(self._client.load(answer))

    # ---- what was chosen before ---------------------------------------------------------------------

    def _name(self, choices: Mapping[NodeAt, NodeChoice]) -> bytes:
        return self._fact_of("plan", sorted({one.by.artifact for one in choices.values()}))

    def _fact_of(self, what: str, more: Any) -> bytes:
        """What the machine's cache calls a fact about this model here, with these libraries."""
        versions = installed_versions((*LIBRARIES, "openvino"))
        return digest_of([what, self.graph.key, *self.place, versions, self._frameworks, more])

    def _rivals(self) -> tuple[str, ...]:
        """Frameworks that are worth trying: all of them once, then, when other kernels are known, those that
        were not far behind. Loading one that was takes seconds to minutes and changes nothing."""
        store = self._client.store
        kept = store.fact(self._fact_of("rivals", conf().loading_s)) if store is not None else None
        return tuple(one for one in self._frameworks if kept is None or one in kept["rivals"])

    def _remembered(self, choices: Mapping[NodeAt, NodeChoice]) -> Executor | None:
        """By what was chosen for this model, from the same kernels, frameworks and libraries."""
        if not choices and not self._frameworks:
            return self._build(whole(self.graph, *self.place))
        store = self._client.store
        kept = store.fact(self._name(choices)) if store is not None else None
        if kept is None:
            return None
        try:
            plan = ModelPlan.from_json(kept.get("plan"))
            check_plan(plan, self.graph, *self.place)
            here = {answer.key: answer.best["artifact"] for answer in self._answers.values() if answer.best}
            if any(here.get(by.operator) != by.artifact for by in plan.kernels):
                return None
            return self._build(plan)
        except (InvalidPlan, LoadError, MemoryError) as error:
            log.warning("A plan that was kept for the model is chosen anew: %s", error)
            return None

    def _remember(self, choices: Mapping[NodeAt, NodeChoice], plan: ModelPlan) -> None:
        if self._client.store is None:
            return
        if any(one.ratios.ratio > UNDECIDED and one.ratios.low <= 1 for one in self.standings):
            log.warning("Too busy a host to say what runs the model fastest: asked again next time.")
            return
        self._client.store.keep_fact(self._name(choices), {"plan": plan.to_json()})
        by_name = {one.said: one.ratios for one in self.standings}
        fastest = max((ratios.ratio for ratios in by_name.values()), default=1.0)
        rivals = [
            one
            for one in self._frameworks
            if (ratios := by_name.get(whole_said(one))) is not None and ratios.high >= RIVAL * fastest
        ]
        self._client.store.keep_fact(self._fact_of("rivals", conf().loading_s), {"rivals": rivals})


class FunctionKernel:
    """A client's function as a step of a plan: what fails goes over to the operator's default and is told."""

    binds_outputs = True

    def __init__(self, function: KernelFunction) -> None:
        self._function = function
        self.operator = function.operator

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        if constants:
            self._function.prepare(constants)

    def bind(self, inputs: Mapping[int, np.ndarray], outputs: Sequence[np.ndarray] | None = None) -> Any:
        numbers = self._function.operator.runtime_inputs
        return self._function.bind([inputs[number] for number in numbers], outputs)

    def close(self) -> None:
        self._function.close()


def _setting(threads: int | None) -> Setting | None:
    return Setting(threads=threads) if threads is not None else None


def tried_frameworks(named: Sequence[str]) -> tuple[str, ...]:
    """Those of them that are installed, in the order in which they are tried; raises
    :class:`opatlas.errors.CallerError` for one that nobody knows."""
    if unknown := [one for one in named if one not in OTHERS]:
        raise CallerError(f"There is no framework {unknown[0]!r} to try; there are {', '.join(OTHERS)}.")
    return tuple(one for one in OTHERS if one in named and is_installed(one))


def _runs_here(answer: Answer) -> bool:
    return (
        answer.best is not None and answer.best.get("kind") in KERNEL_KINDS and answer.from_neighbour is None
    )


def compared(session: Session, feed: Mapping[str, np.ndarray], seconds: float) -> tuple[TimedInTurns, ...]:
    """What runs, and ONNX Runtime's own session of the same model on the same inputs, in turns."""
    theirs = onnxruntime_session(session.graph, session.threads)
    runs = {
        "ONNX Runtime": lambda: theirs.run(None, dict(feed)),
        "Opatlas": lambda: session.run(None, feed),
    }
    return tuple(line_up(runs, seconds).values())


def onnxruntime_session(graph: ModelGraph, threads: int) -> Any:
    """What a user of ONNX Runtime would run the model by."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return open_session(graph.model, options)
