"""A model that runs as in ``onnxruntime.InferenceSession``, with the catalogue's kernels where they are
faster in place: ``opatlas.Session("model.onnx").run(None, {"x": x})``."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any

import numpy as np

from opatlas.client.client import Client
from opatlas.conf import conf
from opatlas.errors import CallerError, LoadError, OpatlasError, first_line
from opatlas.graph.examples import checking_inputs
from opatlas.graph.given_model import random_inputs, read_model
from opatlas.graph.normal import ModelGraph
from opatlas.identity.place.setting import Setting, default_setting
from opatlas.plan.choosing import Chosen, choose
from opatlas.plan.engines import Engines
from opatlas.plan.exactness import MOST_ERROR
from opatlas.plan.executor import Executor, ModelAsGiven
from opatlas.plan.limits import TookTooLong
from opatlas.plan.line_up import TimedInTurns
from opatlas.plan.making import whole
from opatlas.plan.plan import KERNEL_KINDS, InvalidPlan, ModelPlan
from opatlas.plan.regions import OnnxRuntimeRegion
from opatlas.plan.said import said_of
from opatlas.plan.saturating import cut_off_products, has_fed_products
from opatlas.session.as_onnxruntime import AsOnnxRuntime
from opatlas.session.blaming import blamed_kernels, form_differs
from opatlas.session.followed import Followed, check_own, followed, is_of_caller, unfollowed_options
from opatlas.session.forms import OtherForms
from opatlas.session.given_plan import GivenPlan, fused_operators, given_plan
from opatlas.session.held_runs import HeldRuns
from opatlas.session.instead import AsGiven, NotPlanned, PlainRuns
from opatlas.session.io_binding import ModelMeta, gives_arrays, overridable_initializers
from opatlas.session.kept_choice import KeptChoice, tried_frameworks
from opatlas.session.kernels_by_threads import KernelsByThreads
from opatlas.session.known_kernels import KnownKernels
from opatlas.session.left_out import LeftOut
from opatlas.session.own_fusions import fused_choices, own_fusions
from opatlas.session.plain import Plain
from opatlas.session.reporting import StepShare, is_whole, step_shares, timeline_by
from opatlas.session.sharing import Sharing
from opatlas.streams.timeline import Timeline

log = logging.getLogger("opatlas")
ASK_S = 240.0
"""How often a session asks for revoked artifacts: a service tells only those that ask."""
FUSIONS = 16
"""How many operators of several nodes a session asks for by itself; each is explored for minutes, once."""
TRY_S = 5.0
"""The time for comparing plans with the whole model, once for a model and machine."""


class Session(AsOnnxRuntime):
    """A model that runs by whatever is fastest on this machine, never slower than ONNX Runtime.

    ``path_or_bytes``: a model's file or its bytes. ``client`` (default: from the configuration) looks the
    model's operators up in one request. Unknown ones are explored, so a later session is faster. The first
    session of a model on a machine times plans against ONNX Runtime with ``example`` (default: random values)
    for ``try_s`` seconds; later ones remember the result. Symbolic dimensions take their sizes from ``dims``
    or the example. ``frameworks``: which of :data:`opatlas.plan.choosing.OTHERS` to try beside ONNX Runtime,
    if installed (default: ``OPATLAS_FRAMEWORKS``). ``plan``: a plan that takes part instead of plans made
    here, timed each time (:func:`opatlas.session.given_plan.read_given`). True asks the service for one, for
    the model's simpler form (:mod:`opatlas.session.forms`); if there is none, the session goes on without.
    ``fusions``: how many operators of several nodes to try as well if no plan is given; normalisations are
    folded before. 0 takes the nodes as they are.

    A session gives ONNX Runtime's values, even if these are wrong: without VNNI it cuts off sums of products
    of uint8 by int8. ``exact``: give the exact values, which ONNX Runtime computes in a slower way if the
    weights are constants. If even that differs from the model in float64, something that agrees runs it, and
    :attr:`refused` says so. ``check_runs``: compare so many of the first runs with ONNX Runtime on the
    caller's inputs, unless it runs the model itself (default: ``OPATLAS_CHECK_RUNS``; 0: none). After a
    difference ONNX Runtime runs the model.

    ``sess_options``, ``providers``, ``provider_options`` and ``more`` are ONNX Runtime's
    (:mod:`opatlas.session.surface` has the table). Plain ONNX Runtime runs a model that cannot be planned or
    has options that no plan honours, and raises its own errors. It also executes single runs with other
    inputs than planned for, or with run options. The log and ``refused["opatlas"]`` say so once.

    Raises :class:`opatlas.errors.CallerError` for wrong values of arguments that Opatlas adds.
    """

    def __init__(
        self,
        path_or_bytes: str | PathLike[str] | bytes | ModelGraph,
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
        fusions: int = FUSIONS,
        exact: bool = False,
        check_runs: int | None = None,
        _otherwise: KnownKernels | None = None,
        _plain: PlainRuns | None = None,
        _forms: OtherForms | None = None,
        **more: Any,
    ) -> None:
        self._before = frozenset(vars(self))  # what a class of a caller's own has set
        self._arguments = given = AsGiven(
            path_or_bytes, sess_options, providers, provider_options, more, exact
        )
        check_own(threads, dims)
        tried = tried_frameworks(frameworks) if frameworks is not None else None
        self.standings: tuple[TimedInTurns, ...] = ()
        self.refused: Mapping[str, str] = {}
        asked = followed(sess_options, providers, provider_options, more)
        open_planned = partial(
            self._open, path_or_bytes, asked, client=client, dims=dims, threads=threads, example=example,
            try_s=try_s, frameworks=tried, plan=plan, fusions=fusions, exact=exact, check_runs=check_runs,
            _otherwise=_otherwise, _plain=_plain, _forms=_forms,
        )  # fmt: skip
        why = asked.why_not or self._why_unplanned(open_planned, given, plan not in (None, False, True))
        if why:
            setting = client.setting if client is not None else None
            threads = threads or (setting.threads if setting is not None else None)
            self._leave_to_onnxruntime(given, why, dims, threads)

    def _why_unplanned(self, open_planned: Callable[[], None], given: AsGiven, has_plan: bool) -> str:
        """Why no plan takes the model; empty if one does. Raises errors in arguments that Opatlas adds."""
        try:
            open_planned()
        except Exception as error:  # nothing of ours stops a model that ONNX Runtime runs
            if is_of_caller(error, has_plan) or isinstance(given.model, ModelGraph):
                raise
            log.debug("The model is not planned.", exc_info=True)
            self._let_go()
            self._forget()
            return first_line(error)
        # As the options are now: another thread may have set the flag that ends the loading.
        return unfollowed_options(given.sess_options)

    def _leave_to_onnxruntime(
        self, given: AsGiven, why: str, dims: Mapping[str, int] | None, threads: int | None
    ) -> None:
        """Become plain ONNX Runtime from now on."""
        opened, kind = given.open(threads), type(self)
        self._let_go()
        self._forget()
        log.warning("ONNX Runtime runs the model by itself: %s", why)
        is_own = not issubclass(PlainSession, kind)
        plain = type(kind.__name__, (kind, PlainSession), {}) if is_own else PlainSession
        Plain.take(self, plain, opened, given, dims or {}, why)

    def _open(
        self,
        model: str | PathLike[str] | bytes | ModelGraph,
        asked: Followed,
        *,
        client: Client | None,
        dims: Mapping[str, int] | None,
        threads: int | None,
        example: Mapping[str, np.ndarray] | None,
        try_s: float,
        frameworks: tuple[str, ...] | None,
        plan: Any,
        fusions: int,
        exact: bool,
        check_runs: int | None,
        _otherwise: KnownKernels | None,
        _plain: PlainRuns | None,
        _forms: OtherForms | None,
    ) -> None:
        threads = threads if threads is not None else asked.threads
        dims = {**(dims or {}), **asked.dims}
        self.graph = model if isinstance(model, ModelGraph) else read_model(model, dims, example)
        dims = self.graph.walk.dims
        # Of the model as it is given: what runs may be another form of it.
        self._meta, self._overridable = ModelMeta.of(self.graph.model), overridable_initializers(self.graph)
        self._own = client is None
        # Nothing else can take part: where a library is faster alone, the fastest kernel is asked for still.
        self._client = client or Client(setting=_setting(threads), accepts={"kinds": list(KERNEL_KINDS)})
        setting = self._client.setting or default_setting(self._client.target)
        if threads is not None and threads != setting.threads:
            raise CallerError(f"The client's setting has {setting.threads} threads; {threads} are asked for.")
        self.threads = setting.threads
        self.place = (self._client.target.key, setting.key)
        self._ask_at = time.monotonic() + ASK_S
        self._providers, self._gives_arrays = asked.providers, gives_arrays(self.graph)
        self._plain = _plain or PlainRuns(self.graph, asked, self.threads, self._tell, exact=exact)
        self._frameworks = tried_frameworks(conf().frameworks) if frameworks is None else frameworks
        self._forms = _forms or OtherForms(self.graph, dims, example, self.threads)
        self._otherwise = _otherwise
        self._exact, self._check_runs = exact, conf().check_runs if check_runs is None else check_runs
        self._left_out = LeftOut(self._client.store, self._forms.graph.key, self.place, exact)
        if self._left_out.simpler:
            self.graph = self._forms.graph
        self._look_up(given_plan(plan, self.graph, self.place, self._client, self._forms), fusions)
        self._sharing = Sharing(self.threads, self._on_threads)
        self._example, self._try_s, self._most_fusions = example, try_s, fusions
        self._runs_given = False  # the plan that it was given, in one stream or several
        remembered = self._remembered() if self._given is None else None
        self._told: Chosen | None = None  # of a given plan
        self._executor = remembered or self._chosen(asks=plan is True)
        self._checks = self._held = self._to_be_held()

    def _look_up(self, given: GivenPlan | None, fusions: int) -> None:
        """Look up the operators of the form that runs, and fused ones."""
        self._given = given
        if given is not None:
            self.graph, own = given.graph, []
            fused = fused_operators(given.plan, given.running)
        else:
            if fusions > 0 and not self._left_out.simpler and self.graph is self._forms.graph:
                self.graph = self._forms.folded()
            own = own_fusions(self.graph, fusions)
            fused = {one.placed.operator.key: one.placed.operator for one in own}
        self._kernels = KernelsByThreads(self._client, self.graph, fused, self._otherwise)
        self.kernels = self._kernels.own
        self.kernels.look_up()
        self.known = self.kernels.count
        self._fused = fused_choices(own, self.kernels)
        self._fused = [one for one in self._fused if one.by.artifact not in self._left_out.artifacts]
        self._kept = KeptChoice(
            self._client.store, self.graph, self.place, self._frameworks, self._kernels, self._fused,
            self._left_out, exact=self._exact,
        )  # fmt: skip

    @property
    def plan(self) -> ModelPlan:
        """The plan that runs."""
        return (self._sharing.instead or self)._executor.plan

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
        *,
        deadline_s: float = math.inf,
    ) -> list[np.ndarray]:
        """The named outputs (None: all), in that order; inputs are arrays, or ONNX Runtime's values on the
        CPU.

        Plain ONNX Runtime runs or refuses what the plan does not take: inputs of other sizes or types, other
        outputs, any ``run_options``. ``deadline_s``: for a session on shared engines, the time by which the
        run must end, else :class:`opatlas.plan.engines.DeadlinePassed` is raised.
        """
        if run_options is not None:
            plain = self._plainly("run options", "A run is given run options.")
            return plain.run(output_names, input_feed, run_options)
        if (instead := self._sharing.instead) is not None:
            return instead.run(output_names, input_feed, deadline_s=deadline_s)
        try:
            if self._held is None:
                return self._run(output_names, input_feed, deadline_s)
            return self._run_held(output_names, input_feed, deadline_s)
        except NotPlanned as error:
            why = str(error)
        return self._plainly("inputs", why).run(output_names, input_feed)

    def _run_held(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], deadline_s: float
    ) -> list[Any]:
        """The same, compared with ONNX Runtime as long as runs are. Raises :class:`NotPlanned`."""
        held, names = self._held, output_names or self.graph.output_names
        if held is None or not isinstance(names, list | tuple) or not isinstance(input_feed, Mapping):
            return self._run(output_names, input_feed, deadline_s)

        def run() -> dict[str, Any]:
            return dict(zip(names, self._run(output_names, input_feed, deadline_s), strict=True))

        made = held.run(input_feed, run, deadline_s)
        self._held = None if held.over else held
        return [made[name] for name in names]

    def _run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], deadline_s: float
    ) -> list[Any]:
        if self._sharing.share is None:
            if deadline_s < math.inf:
                raise CallerError(
                    "A deadline is of a session that shares engines: call share(engines) first."
                )
            direct = self._executor.direct
            if direct is not None and (made := direct.run(output_names, input_feed)) is not None:
                return made
        return self._run_planned(output_names, input_feed, deadline_s)

    def share(self, engines: Engines | None, name: str = "model", *, priority_s: float = 0.0) -> None:
        """Run on these engines from now on, in turns with other models there; None: alone again.

        ``priority_s``: how far its steps may overtake earlier ones, within the engines' bound. If the engines
        have fewer threads than the session, the model runs by what is fastest on so many: kernels for these,
        which are looked up and explored if unknown, else the session's own. That is timed here for ``try_s``
        seconds, once for a model and machine, and takes the model's memory once more.
        """
        if engines is None:
            self._sharing.end()
        else:
            self._sharing.begin(engines, name, priority_s)

    def breakdown(self, input_feed: Mapping[str, np.ndarray]) -> list[StepShare]:
        """Where the time goes: each step's time, and ONNX Runtime's for the same nodes in the model."""
        return step_shares(self.graph, self._executor, input_feed, self.threads)

    def timeline(self, input_feed: Mapping[str, np.ndarray]) -> Timeline:
        """One run, alone: streams as rows, kernels as boxes; from ONNX Runtime's profile if it runs the whole
        model. For shared engines see :meth:`opatlas.plan.engines.Engines.timeline`."""
        return timeline_by(self.graph, self._executor, input_feed, self.threads)

    def report_timeline(self, input_feed: Mapping[str, np.ndarray]) -> Timeline:
        """Report a run by the service's plan, on shared engines or alone; the service's page of the model
        draws it. A plan that was not chosen is loaded for it. Raises :class:`opatlas.errors.CallerError` if
        the session has no plan of the service or its client asks nobody; :class:`opatlas.errors.LoadError` if
        the plan does not run here."""
        given = self._given
        if given is None or given.number is None:
            raise CallerError("There is no plan of the service whose run could be told: give plan=True.")
        if self._client.offline:
            raise CallerError("The client is offline: nobody can be told of a run.")
        if self._runs_given and self._sharing.instead is None and not self._executor.fallen_back:
            shared = self._sharing.timeline(lambda: self.run(None, input_feed))
            timeline = shared or self.timeline(input_feed)
        else:
            timeline = self._timeline_of(given.plan, input_feed)
        given.report_timeline(self._client, timeline)
        return timeline

    @property
    def plan_number(self) -> int | None:
        """The number of the service's plan that takes part; None if there is none."""
        return self._given.number if self._given is not None else None

    def _timeline_of(self, plan: ModelPlan, input_feed: Mapping[str, np.ndarray]) -> Timeline:
        executor = self._build(plan)
        try:
            timeline = timeline_by(self.graph, executor, input_feed, self.threads)
            if executor.fallen_back:
                raise LoadError(f"The plan does not run here: {executor.fallen_back}.")
            return timeline
        finally:
            executor.close()

    @property
    def peak_bytes(self) -> int:
        """Bytes of the buffer for values between steps; 0 if a framework runs the whole model."""
        return self._executor.peak_bytes

    @property
    def checks(self) -> HeldRuns | None:
        """How many runs were compared with ONNX Runtime, and why no further one is. None if ONNX Runtime
        itself runs the model as it was given."""
        return self._checks

    @property
    def check_peak_bytes(self) -> int:
        """About the most extra memory that comparing runs took."""
        return self._checks.peak_bytes if self._checks is not None else 0

    def example(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Random inputs of the model's types: normal floats, small whole numbers, true."""
        return random_inputs(self.graph, seed)

    def close(self) -> None:
        """Release kernels, buffers and the client, if the session made it."""
        self._plain.close()
        self._let_go()

    def _let_go(self) -> None:
        """Release whatever exists: planning may have failed at any step."""
        there = vars(self)
        own = ["_client"] if there.get("_own") else []
        for name in ("_sharing", "_checks", "_executor", "_kernels", *own):
            if (one := there.get(name)) is not None:
                one.close()

    def _forget(self) -> None:
        """Drop the plan and its memory."""
        kept = {*self._before, "_before", "_arguments", "refused", "standings"}
        for name in vars(self).keys() - kept:
            delattr(self, name)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _on_threads(self, threads: int) -> Session | None:
        """A session of the same model on fewer threads; None if kernels for these cannot be asked for, or if
        ONNX Runtime runs the model after a difference."""
        if self._executor.fallen_back or (client := self._client.for_threads(threads)) is None:
            return None
        made = Session(
            self._forms.graph if self._left_out.simpler else self.graph,
            client=client, threads=threads, example=self._example, try_s=self._try_s,
            frameworks=self._frameworks, fusions=self._most_fusions, exact=self._exact,
            check_runs=self._check_runs, _otherwise=self.kernels, _plain=self._plain, _forms=self._forms,
        )  # fmt: skip
        made._own = True
        return made

    def _remembered(self) -> Executor | None:
        """The executor of an earlier choice for this model."""
        if not (self._kept.is_open or self._exact):
            return self._build(whole(self.graph, *self.place))
        try:
            plan = self._kept.plan()
            return self._build(plan) if plan is not None else None
        except (InvalidPlan, LoadError, MemoryError) as error:
            log.warning("A plan that was kept for the model is chosen anew: %s", error)
            return None

    def _chosen(self, asks: bool = False) -> Executor:
        """The fastest candidate, with the caller's example, which must fit, else with random values if the
        model accepts them. ``asks``: the plan was asked for; if it errs too much, a plan of exact kernels is
        asked for instead."""
        limit_s = conf().first_run_s
        if self._example is None and (reason := self._left_out.unending(limit_s)):
            return self._unheld(reason)
        choices = self._left_out.without(self.kernels.choices)
        exactly = self._forms.exactly if self._exact else self._forms.in_float64
        try:
            given = self._example is not None
            feed = self._example if self._example is not None else self._random_inputs()
            chosen = choose(
                self.graph, choices, self.place, self._build, feed, self.threads, self._try_s,
                frameworks=self._kept.rivals(), loading_s=conf().loading_s,
                given=None if self._given is None else self._given.plan, fused=self._fused,
                fewer=lambda threads: self._left_out.without(self._kernels.choices_on(threads)),
                exact=lambda: exactly(self.graph, feed), wants_exact=self._exact, first_run_s=limit_s,
                examples=checking_inputs(self.graph, feed, is_given=given),
            )  # fmt: skip
        except TookTooLong as error:
            reason = f"The example did not end ({error}): give the session one that does by example=."
            if self._example is None:
                self._left_out.add_example(reason, limit_s)
            return self._unheld(reason)
        except OpatlasError as error:
            if self._example is not None:
                raise
            log.warning("No plan is tried: random inputs do not fit the model (%s). Give an example.", error)
            return self._build(whole(self.graph, *self.place))
        if chosen.inexact and asks:
            exact = given_plan(True, self._forms.graph, self.place, self._client, self._forms, MOST_ERROR)
            if exact is not None:
                chosen.executor.close()
                self._kernels.close()
                self._look_up(exact, self._most_fusions)
                return self._chosen()
        self.standings, self.refused = chosen.standings, chosen.refused
        if chosen.default_differs:
            self._left_out.add_default()
        if self._given is None:
            self._kept.keep(chosen.plan, chosen.standings)
        else:
            self._told, self._runs_given = chosen, said_of(chosen.plan) in chosen.of_given
            self._given.report(self._client, chosen)
        return chosen.executor

    def _random_inputs(self) -> Mapping[str, np.ndarray]:
        """Over the whole range of the types if 8-bit products must be exact and ONNX Runtime may cut them
        off: small numbers would not show it."""
        feed = self.example()
        if self._exact and cut_off_products(self.graph) and has_fed_products(self.graph):
            return checking_inputs(self.graph, feed)[0]
        return feed

    def _unheld(self, reason: str) -> Executor:
        """ONNX Runtime's executor, when nothing can be compared with it."""
        log.warning("No plan is tried. %s", reason)
        self.refused = {"every plan and framework": reason}
        return self._build(whole(self.graph, *self.place))

    def _to_be_held(self) -> HeldRuns | None:
        """Compare runs if anything but ONNX Runtime runs the model, or a form that the caller did not
        give."""
        is_given = self.graph is self._forms.graph
        if self._left_out.default or (is_given and is_whole(self._executor.plan)):
            return None
        return HeldRuns(
            self._forms.graph, self.threads, self._check_runs, conf().check_s, exact=self._exact,
            is_own=lambda feed: self._executor.is_own(feed), if_open=self._plain.if_open, left=self._leave,
        )  # fmt: skip

    def _leave(
        self, reason: str, feed: Mapping[str, Any], theirs: Mapping[str, Any], model: OnnxRuntimeRegion
    ) -> None:
        """Leave the model to ONNX Runtime for good: the outputs differed from ``theirs``."""
        plan = self._executor.plan
        said = said_of(plan) + ", in a simpler form" * (self.graph is not self._forms.graph)
        self._executor.leave(model, reason)
        self.refused = {**self.refused, said: reason}
        log.warning("%s: %s. ONNX Runtime runs the model from now on.", said, reason)
        try:
            self._leave_out(plan, reason, feed, theirs)
            if self._given is not None and self._told is not None:
                self._given.report(self._client, self._told, runs=said_of(self.plan))
        except Exception:  # the caller's run has its values, whatever fails while blame is found and told
            log.warning("Who is to blame for it is not known.", exc_info=True)

    def _leave_out(
        self, plan: ModelPlan, reason: str, feed: Mapping[str, Any], theirs: Mapping[str, Any]
    ) -> None:
        """Leave out what is to blame from now on; a kernel is reported to the service."""
        given = (self._executor.graph, plan, self._build, feed, theirs)
        if theirs and self.graph is not self._forms.graph and form_differs(*given):
            self._left_out.add_simpler()
            return
        blamed = blamed_kernels(*given, conf().check_s) if theirs else []
        self._left_out.add(plan, blamed)
        for by in blamed:
            try:
                kernel = self._kernels.load(by)
                kernel.blame(reason)
                kernel.close()
            except OpatlasError as error:
                log.warning("That %s gave other values is not told: %s", by.said, error)

    def _build(self, plan: ModelPlan) -> Executor:
        graph = self._given.running if self._given is not None and plan.nhwc else self.graph
        given = ModelAsGiven(self._forms.graph, self._as_given)
        return Executor(
            graph, plan, self._kernels.load, threads=self.threads, revoked=self._revoked, exact=self._exact,
            given=given,
        )  # fmt: skip

    def _as_given(self) -> OnnxRuntimeRegion:
        """The caller's model in ONNX Runtime's session, for what no plan takes."""
        graph = self._forms.graph
        try:
            opened = self._plain.opened()
        except CallerError:
            raise
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            raise LoadError(f"ONNX Runtime does not take the model: {first_line(error)}") from error
        return OnnxRuntimeRegion.around(opened, graph.input_names, graph.output_names)

    def _revoked(self) -> frozenset[str]:
        """Artifacts that must not run any more, as far as the machine knows; asked now and then, without
        delaying the job."""
        if time.monotonic() > self._ask_at:
            self._ask_at = time.monotonic() + ASK_S
            self._client.refresh([by.operator for by in self.plan.kernels])
        return self._client.revoked


class PlainSession(Plain, Session):  # type: ignore[misc,override]  # its graph is read when asked for
    """What a :class:`Session` becomes if it cannot be planned."""


def _setting(threads: int | None) -> Setting | None:
    return Setting(threads=threads) if threads is not None else None
