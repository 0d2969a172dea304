"""Other forms of a model that a plan can be made for, used only if they give the same values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from opatlas.conf import conf
from opatlas.errors import OpatlasError, first_line
from opatlas.graph.channels_last import ChannelsLast
from opatlas.graph.given_model import random_inputs
from opatlas.graph.laid_model import LaidOutGraph
from opatlas.graph.laid_out import NotLaidOut
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import ModelProfile
from opatlas.graph.simplify import NotSimplified, simplified
from opatlas.load.onnxruntime_recipe import quiet_options
from opatlas.plan.closeness import is_close
from opatlas.plan.exactness import by_onnx, in_float64_if_possible
from opatlas.plan.limits import run_within
from opatlas.plan.profiling import profile_in_place
from opatlas.plan.regions import open_session
from opatlas.plan.saturating import cut_off_products, has_fed_products

log = logging.getLogger("opatlas")
FOLDED_INTO = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})

Form = TypeVar("Form", bound=ModelGraph)


class OtherForms:
    """The forms of one model (``graph``), verified over ``example``, else over random inputs."""

    def __init__(
        self,
        graph: ModelGraph,
        dims: Mapping[str, int] | None,
        example: Mapping[str, np.ndarray] | None,
        threads: int,
    ) -> None:
        self.graph, self._dims, self._example, self._threads = graph, dims, example, threads
        self._simpler: ModelGraph | NotSimplified | None = None
        self._profiles: dict[str, ModelProfile] = {}
        self._exact: dict[str, list[np.ndarray] | None] = {}

    def folded(self) -> ModelGraph:
        """The model with normalisations folded into the nodes before them: it then has fewer operators, which
        more models share. Without such normalisations, or if that form is not verified, the model itself."""
        if not _has_foldable(self.graph):
            return self.graph
        try:
            return self.simpler()
        except OpatlasError as error:
            log.info("The model is planned as it is: %s", error)
            return self.graph

    def simpler(self) -> ModelGraph:
        """The result of :func:`simplified_graph`, made once: it takes a second or more."""
        if self._simpler is None:
            try:
                self._simpler = simplified_graph(self.graph, self._dims, self._feed(), self._threads)
            except NotSimplified as error:
                self._simpler = error
        if isinstance(self._simpler, NotSimplified):
            raise self._simpler
        return self._simpler

    def laid_out(self, graph: ModelGraph, nhwc: ChannelsLast) -> ModelGraph:
        """The result of :func:`laid_out_graph` for the model or its simpler form, which has the same
        inputs."""
        return laid_out_graph(graph, nhwc, self._feed(), self._threads)

    def profiled(self, graph: ModelGraph) -> ModelProfile:
        """A profile of some runs of the model, or of its simpler form; made once."""
        if graph.key not in self._profiles:
            self._profiles[graph.key] = profile_in_place(graph, self._feed(), self._threads)
        return self._profiles[graph.key]

    def in_float64(self, graph: ModelGraph, feed: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
        """The outputs over ``feed`` in float64; computed once, since a large model takes seconds. None if
        they cannot be computed."""
        if graph.key not in self._exact:
            self._exact[graph.key] = in_float64_if_possible(graph, feed, self._threads)
        return self._exact[graph.key]

    def exactly(self, graph: ModelGraph, feed: Mapping[str, np.ndarray]) -> Sequence[np.ndarray] | None:
        """The same. For 8-bit products that PyTorch lacks and ONNX Runtime cannot compute exactly, ONNX's own
        evaluator."""
        found = self.in_float64(graph, feed)
        if found is None and cut_off_products(graph) and has_fed_products(graph):
            return by_onnx(graph, feed, conf().first_run_s)
        return found

    def _feed(self) -> Mapping[str, np.ndarray]:
        return self._example or random_inputs(self.graph)


def _has_foldable(graph: ModelGraph) -> bool:
    """Whether a batch normalisation follows a convolution or a product."""
    makers = {name: node.proto.op_type for node in graph.nodes for name in node.proto.output}
    return any(
        node.proto.op_type == "BatchNormalization" and makers.get(node.proto.input[0]) in FOLDED_INTO
        for node in graph.nodes
    )


def simplified_graph(
    graph: ModelGraph, dims: Mapping[str, int] | None, feed: Mapping[str, np.ndarray], threads: int
) -> ModelGraph:
    """The model simplified by :func:`opatlas.graph.simplify.simplified`, if it gives the model's outputs over
    ``feed``. Raises :class:`NotSimplified`, and what :class:`ModelGraph` raises."""

    def simpler() -> ModelGraph:
        found = ModelGraph(simplified(graph.model, dims).SerializeToString(), dims)
        if (found.input_names, found.output_names) != (graph.input_names, graph.output_names):
            raise NotSimplified("The simplified model has other inputs or outputs.")
        return found

    return verified(graph, simpler, feed, threads, refusal=NotSimplified, said="The simplified model")


def laid_out_graph(
    graph: ModelGraph, nhwc: ChannelsLast, feed: Mapping[str, np.ndarray], threads: int
) -> LaidOutGraph:
    """The model with these nodes channels-last (:mod:`opatlas.graph.laid_out`), if it gives the model's
    outputs over ``feed``. Raises :class:`NotLaidOut`, and what :class:`ModelGraph` raises."""
    said = "The model with nodes channels-last"
    return verified(graph, lambda: LaidOutGraph(graph, nhwc), feed, threads, refusal=NotLaidOut, said=said)


def verified(
    graph: ModelGraph,
    make: Callable[[], Form],
    feed: Mapping[str, np.ndarray],
    threads: int,
    *,
    refusal: type[Exception],
    said: str,
) -> Form:
    """The result of ``make``, if it gives the outputs of ``graph`` over ``feed``; ``said``: its label. Raises
    a ``refusal``, and what ``make`` raises."""
    if graph.is_random:
        raise refusal("The model has random numbers: no two runs of it can be compared.")
    found = make()
    try:
        expected, made = (
            run_within(open_session(one.model, quiet_options(threads)), None, feed, conf().first_run_s)
            for one in (graph, found)
        )
    except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
        raise refusal(f"ONNX Runtime does not run the model: {first_line(error)}") from error
    if not all(map(is_close, made, expected)):
        raise refusal(f"{said} gives other values than the model.")
    return found
