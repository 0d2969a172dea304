"""A plan that a session is given or asks the service for: where it is from, whether it fits, and what it came
to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.client.client import Client
from opatlas.client.service.wire import ServiceError
from opatlas.errors import OpatlasError
from opatlas.graph.fused import operator_of
from opatlas.graph.normal import ModelGraph
from opatlas.graph.simplify import NotSimplified
from opatlas.graph.structure import structure_of
from opatlas.identity.operator import Operator
from opatlas.identity.place.setting import default_setting
from opatlas.plan.checking import check_plan
from opatlas.plan.choosing import said_of
from opatlas.plan.line_up import TimedInTurns
from opatlas.plan.plan import ByBodies, ByKernel, ModelPlan

PASSES = ("kernels", "fusion")
"""What a session asks a plan by; the model was simplified before."""
ASKED_FUSIONS = 16
"""Fused operators that a session has explored for it: those that might save most."""
WAIT_S = 30.0
"""For the service to make a plan: fused operators of a large model take it seconds."""

Simplified = Callable[[], ModelGraph]
"""The simpler form of a session's model; raises :class:`NotSimplified`."""


@dataclass(frozen=True)
class GivenPlan:
    """``graph``: what it is a plan of, the model or its simpler form; ``number``: the service's, to which
    what was measured is told, None of any other."""

    plan: ModelPlan
    graph: ModelGraph
    number: int | None = None

    def report(self, client: Client, standings: Sequence[TimedInTurns], chosen: str) -> None:
        """Tell the service what the plan came to, beside the job; ``standings``: the default's first."""
        mine = next((one for one in standings[1:] if one.said == said_of(self.plan)), None)
        if self.number is None or mine is None or client.offline:
            return
        measured = {
            "plan_us": mine.median_us,
            "default_us": standings[0].median_us,
            "ratio": mine.ratios.ratio,
            "ratio_low": mine.ratios.low,
            "ratio_high": mine.ratios.high,
            "chosen": chosen == mine.said,
        }
        client.aside(lambda: self._send(client, measured))

    def _send(self, client: Client, measured: Mapping[str, Any]) -> None:
        try:
            client.rest.call("POST", f"/api/v1/plans/{self.number}/measured", measured)
        except OpatlasError as error:
            client.tell(f"What plan {self.number} came to is not told: {error}")


def read_given(
    given: Any, graph: ModelGraph, place: tuple[str, str], client: Client, simpler: Simplified
) -> GivenPlan:
    """A :class:`ModelPlan`, its JSON, or what ``/api/v1/plans`` answers: with a signature, which must be a
    trusted key's then, and the plan's number. It may be for the model or for its simpler form.

    Raises :class:`opatlas.plan.plan.InvalidPlan` for a plan of another model, target, setting or version, or
    one that does not compute the model; :class:`opatlas.errors.LoadError` for a signature that does not
    count.
    """
    document, number = given, None
    if isinstance(given, Mapping) and isinstance(given.get("plan"), Mapping):
        document = given["plan"]
        number = given["id"] if type(given.get("id")) is int else None
        if signature := given.get("signature"):
            signer = str(given.get("signer"))
            client.artifacts.trusted(signer).check_plan(document, str(signature), signer)
    plan = document if isinstance(document, ModelPlan) else ModelPlan.from_json(document)
    if plan.model != graph.key:
        graph = _simpler_if_meant(plan, graph, simpler)
    check_plan(plan, graph, *place)
    return GivenPlan(plan, graph, number)


def _simpler_if_meant(plan: ModelPlan, graph: ModelGraph, simpler: Simplified) -> ModelGraph:
    try:
        found = simpler()
    except NotSimplified:
        return graph
    return found if found.key == plan.model else graph


def asked_plan(graph: ModelGraph, place: tuple[str, str], client: Client, simpler: Simplified) -> GivenPlan:
    """The service's plan of the model's simpler form (of the model itself where it has none): operators that
    it has never seen are told to it first, and fused ones that might save most become misses.

    Raises :class:`opatlas.errors.OpatlasError` where the service gives none."""
    try:
        graph = simpler()
    except NotSimplified as reason:
        client.tell(f"The model is planned as it is: {reason}")
    client.lookup_all([found.operator for found, _ in graph.operators().values()])
    wanted = {
        "structure": structure_of(graph).to_json(),
        "target": client.target.to_json(),
        "setting": (client.setting or default_setting(client.target)).to_json(),
        "passes": list(PASSES),
        "fusions": ASKED_FUSIONS,
    }
    answer = client.rest.call(
        "POST", f"/api/v1/plans?wait_s={WAIT_S:g}", wanted, timeout_s=WAIT_S + client.rest.timeout_s
    )
    if not isinstance(answer, Mapping) or "plan" not in answer:
        raise ServiceError("The service has not made the plan yet: ask again later.")
    return read_given(answer, graph, place, client, lambda: graph)


def fused_operators(plan: ModelPlan, graph: ModelGraph) -> dict[str, Operator]:
    """The operators of several nodes in a plan that was checked, bodies included, by their keys: no node's
    own are among them."""
    found = dict[str, Operator]()
    for step in plan.steps:
        if isinstance(step.by, ByKernel) and len(step.nodes) > 1:
            found[step.by.operator] = operator_of(graph, step.nodes, step.outputs).operator
        elif isinstance(step.by, ByBodies):
            bodies = graph.nodes[step.nodes[0]].bodies
            for inner, body in zip(step.by.plans, bodies, strict=True):
                found |= fused_operators(inner, body.graph)
    return found
