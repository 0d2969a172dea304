"""The methods that a session shares with ``onnxruntime.InferenceSession`` beside ``run``, by the rows of
:mod:`opatlas.session.surface`."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnxruntime as ort

from opatlas.errors import CallerError, first_line
from opatlas.graph.normal import ModelGraph
from opatlas.plan.engines import DeadlinePassed
from opatlas.plan.executor import Executor, UnexpectedInputs
from opatlas.session.followed import followed
from opatlas.session.held_runs import HeldRuns
from opatlas.session.instead import AsGiven, NotPlanned, PlainRuns
from opatlas.session.io_binding import (
    IOBinding,
    ModelMeta,
    NodeArg,
    UnreadableValue,
    as_array,
    as_value,
)
from opatlas.session.sharing import Sharing

log = logging.getLogger("opatlas")


class AsOnnxRuntime:
    """The part of :class:`opatlas.session.Session` with the interface of ONNX Runtime's session."""

    graph: ModelGraph
    refused: Mapping[str, str]
    threads: int
    _meta: ModelMeta
    _overridable: Sequence[NodeArg]
    _providers: tuple[str, ...]
    _gives_arrays: bool
    _arguments: AsGiven
    _plain: PlainRuns
    _executor: Executor
    _sharing: Sharing[Any]
    _held: HeldRuns | None

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """See :meth:`opatlas.session.Session.run`."""
        raise NotImplementedError

    def _leave_to_onnxruntime(
        self, given: AsGiven, why: str, dims: Mapping[str, int] | None, threads: int | None
    ) -> None:
        raise NotImplementedError

    def get_inputs(self) -> list[NodeArg]:
        """The inputs of a run."""
        return [NodeArg(name, self.graph.proto_of(name)) for name in self.graph.input_names]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs of a run."""
        return [NodeArg(name, self.graph.proto_of(name)) for name in self.graph.output_names]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Constants that a run may set too."""
        return list(self._overridable)

    def get_modelmeta(self) -> ModelMeta:
        """The model's metadata."""
        return self._meta

    def get_providers(self) -> list[str]:
        """The providers that ONNX Runtime would name: the CPU's, whatever runs the model."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {one: {} for one in self._providers}

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """With other providers than the CPU's, plain ONNX Runtime runs the session from now on."""
        asked = followed(None, providers, provider_options, {})
        if asked.why_not:
            given = replace(self._arguments, providers=providers, provider_options=provider_options)
            self._leave_to_onnxruntime(given, asked.why_not, self.graph.walk.dims, self.threads)
        else:
            self._providers = asked.providers

    def get_session_options(self) -> Any:
        """The caller's own options, or default ones."""
        return self._arguments.sess_options or ort.SessionOptions()

    def enable_fallback(self) -> None:
        """Does nothing: a plan has no provider that could fail."""

    def disable_fallback(self) -> None:
        """Does nothing: a plan has no provider that could fail."""

    def end_profiling(self) -> str:
        """No file: plain ONNX Runtime runs a session that is asked for a profile."""
        return ""

    def get_profiling_start_time_ns(self) -> int:
        """0, as for a session without a profile."""
        return 0

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """Like :meth:`run`, with ONNX Runtime's values as inputs and outputs."""
        if run_options is None and self._gives_arrays:
            return [as_value(one) for one in self.run(output_names, input_dict_ort_values)]
        plain = self._plainly("values", "A run of values has run options, or outputs that are no arrays.")
        return list(plain.run_with_ort_values(output_names, input_dict_ort_values, run_options))

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs by name, for :meth:`run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """One run over what is bound, here or in an ``onnxruntime.IOBinding``."""
        if not isinstance(iobinding, IOBinding):
            plain = self._plainly("binding", "A binding is ONNX Runtime's own.")
            plain.run_with_iobinding(iobinding, run_options)
            return
        try:
            self._run_bound_held(iobinding, run_options)
            return
        except NotPlanned as error:
            why = str(error)
        iobinding._run_plainly(self._plainly("binding", why), run_options)

    def _run_bound_held(self, binding: IOBinding, run_options: Any) -> None:
        """Run by the plan; the first runs are compared with ONNX Runtime. Raises :class:`NotPlanned`."""
        by = self._sharing.instead or self  # on engines of fewer threads another session runs it
        if (held := by._held) is None or run_options is not None:
            self._run_bound(binding, run_options)
            return

        def run() -> dict[str, Any]:
            self._run_bound(binding, None)
            return binding._bound()

        binding._put(held.run(binding._inputs, run))
        by._held = None if held.over else held

    def _run_bound(self, binding: IOBinding, run_options: Any) -> None:
        direct = self._executor.direct if run_options is None and self._sharing.share is None else None
        if direct is None or not binding._run_by(direct):
            binding._run_planned((self._sharing.instead or self)._run_planned, run_options)

    def __getattr__(self, name: str) -> Any:
        """ONNX Runtime's session has all other methods (:mod:`opatlas.session.surface`)."""
        why = f"A plan has no {name}."
        if name == "_sess":  # what ``onnxruntime.IOBinding(session)`` reads
            return self._plainly(name, why)._sess
        if name.startswith("_") or not hasattr(ort.InferenceSession, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return lambda *given, **named: getattr(self._plainly(name, why), name)(*given, **named)

    def _tell(self, why: str) -> None:
        log.warning("ONNX Runtime runs by itself what the plan does not take: %s", why)
        self.refused = {"opatlas": why, **self.refused}

    def _plainly(self, kind: str, why: str) -> ort.InferenceSession:
        """ONNX Runtime's own session, for what the plan does not accept."""
        return self._plain.session(kind, why)

    def _run_planned(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], deadline_s: float = math.inf
    ) -> list[Any]:
        """Run by the plan. Raises :class:`NotPlanned` for what it does not accept, or fails over."""
        wanted = self.graph.output_names if output_names is None else output_names
        if not isinstance(wanted, list | tuple) or not set(wanted) <= set(self.graph.output_names):
            raise NotPlanned(f"The outputs {wanted!r} are not the model's.")
        if not isinstance(input_feed, Mapping):
            raise NotPlanned("The inputs are no arrays by name.")
        if more := input_feed.keys() - set(self.graph.input_names):  # a constant, which ONNX Runtime may take
            raise NotPlanned(f"The plan has no input {', '.join(map(str, more))}.")
        try:
            feed = {name: as_array(value) for name, value in input_feed.items()}
            made = self._executor.run(feed, self._sharing.share, deadline_s)
        except Exception as error:
            is_known = isinstance(error, UnexpectedInputs | UnreadableValue)
            if isinstance(error, CallerError | DeadlinePassed) and not is_known:
                raise  # the model was closed, or runs itself
            raise NotPlanned(first_line(error)) from error
        by_name = dict(zip(self.graph.output_names, made, strict=True))
        return [by_name[name] for name in wanted or self.graph.output_names]
