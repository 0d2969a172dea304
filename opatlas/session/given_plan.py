"""A plan that a session is given or asks the service for: reading it, checking that it fits, and reporting
the result."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.client.client import Client
from opatlas.client.service.wire import ServiceError
from opatlas.errors import OpatlasError
from opatlas.graph.fused import operator_of
from opatlas.graph.laid_out import NotLaidOut
from opatlas.graph.normal import ModelGraph
from opatlas.graph.simplify import NotSimplified
from opatlas.graph.structure import ModelStructure, structure_of
from opatlas.identity.operator import Operator
from opatlas.identity.place.setting import default_setting
from opatlas.plan.checking import check_plan
from opatlas.plan.choosing import Chosen
from opatlas.plan.plan import ByBodies, ByKernel, InvalidPlan, ModelPlan
from opatlas.plan.said import said_of
from opatlas.session.forms import OtherForms
from opatlas.streams.timeline import Timeline

log = logging.getLogger("opatlas")
PASSES = ("kernels", "fusion", "layout")
"""The passes that a session asks for; the model was simplified before."""
ASKED_FUSIONS, ASKED_LAYOUTS = 16, 8
"""Fused and channels-last operators that a session has explored for it: those that might save most."""
WAIT_S = 30.0
"""How long the service may make a plan: fused operators of a large model take seconds."""


@dataclass(frozen=True)
class GivenPlan:
    """``graph``: the form that the plan is for, the model or its simpler form; ``running``: that form, laid
    out if the plan has layouts; ``number``: the service's number of the plan, to which results are reported.
    None for any other plan."""

    plan: ModelPlan
    graph: ModelGraph
    running: ModelGraph
    number: int | None = None

    def report(self, client: Client, chosen: Chosen, runs: str = "") -> None:
        """Report the plan's times to the service, in one stream or in several if that was faster. ``runs``:
        what runs now, if that is not what was chosen. Does not delay the job."""
        standings, runs = chosen.standings, runs or said_of(chosen.plan)
        every = [one for one in standings[1:] if one.said in chosen.of_given]
        mine = max(every, key=lambda one: (one.said == runs, one.ratios.ratio), default=None)
        if self.number is None or mine is None or client.offline:
            return
        measured = {
            "plan_us": mine.median_us,
            "default_us": standings[0].median_us,
            "ratio": mine.ratios.ratio,
            "ratio_low": mine.ratios.low,
            "ratio_high": mine.ratios.high,
            "chosen": mine.said == runs,
        }
        client.aside(lambda: self._send(client, "measured", measured))

    def report_timeline(self, client: Client, timeline: Timeline) -> None:
        """Report a run by the plan to the service. Does not delay the job."""
        client.aside(lambda: self._send(client, "timeline", timeline.to_json()))

    def _send(self, client: Client, what: str, report: Mapping[str, Any]) -> None:
        try:
            client.rest.call("POST", f"/api/v1/plans/{self.number}/{what}", report)
        except OpatlasError as error:
            client.tell(f"What plan {self.number} came to is not told: {error}")


def given_plan(
    given: Any,
    graph: ModelGraph,
    place: tuple[str, str],
    client: Client,
    forms: OtherForms,
    most_error: float | None = None,
) -> GivenPlan | None:
    """The caller's plan (:func:`read_given`). True: the service's plan, or None (logged) if it has none.
    Nothing: None. ``most_error``: ask for kernels that err at most so many times as much as ONNX Runtime."""
    if given is None or given is False:
        return None
    if given is not True:
        return read_given(given, graph, place, client, forms)
    try:
        return asked_plan(graph, place, client, forms, most_error)
    except OpatlasError as error:
        log.warning("There is no plan of the service: %s", error)
        return None


def read_given(
    given: Any, graph: ModelGraph, place: tuple[str, str], client: Client, forms: OtherForms
) -> GivenPlan:
    """Reads a :class:`ModelPlan`, its JSON, or an answer of ``/api/v1/plans``, which has the plan's number
    and a signature that must be of a trusted key. It may be for the model or its simpler form, with some
    nodes channels-last. Raises :class:`opatlas.plan.plan.InvalidPlan` for a plan of another model, target,
    setting or version, or one that does not compute the model; :class:`opatlas.errors.LoadError` for a
    signature that is not valid."""
    document, number = given, None
    if isinstance(given, Mapping) and isinstance(given.get("plan"), Mapping):
        document = given["plan"]
        number = given["id"] if type(given.get("id")) is int else None
        if signature := given.get("signature"):
            signer = str(given.get("signer"))
            client.artifacts.trusted(signer).check_plan(document, str(signature), signer)
    plan = document if isinstance(document, ModelPlan) else ModelPlan.from_json(document)
    if plan.model != graph.key:
        graph = _simpler_if_meant(plan, graph, forms)
    running = _laid_out(plan, graph, forms) if plan.nhwc and plan.model == graph.key else graph
    check_plan(plan, running, *place)
    return GivenPlan(plan, graph, running, number)


def _laid_out(plan: ModelPlan, graph: ModelGraph, forms: OtherForms) -> ModelGraph:
    try:
        return forms.laid_out(graph, plan.nhwc)
    except NotLaidOut as error:
        raise InvalidPlan(f"The plan's layouts cannot be: {error}") from error


def _simpler_if_meant(plan: ModelPlan, graph: ModelGraph, forms: OtherForms) -> ModelGraph:
    try:
        found = forms.simpler()
    except NotSimplified:
        return graph
    return found if found.key == plan.model else graph


def asked_plan(
    graph: ModelGraph,
    place: tuple[str, str],
    client: Client,
    forms: OtherForms,
    most_error: float | None = None,
) -> GivenPlan:
    """The service's plan for the model's simpler form (the model itself if it has none). Unknown operators
    are sent first; fused ones that might save most become misses. The service weighs kernels against ONNX
    Runtime's times in place, and branches and loops by how often they run. Raises
    :class:`opatlas.errors.OpatlasError` if there is no plan."""
    original = graph.key
    try:
        graph = forms.simpler()
    except NotSimplified as reason:
        client.tell(f"The model is planned as it is: {reason}")
    client.lookup_all([found.operator for found, _ in graph.operators().values()])
    asked: dict[str, Any] = {"fusions": ASKED_FUSIONS, "layouts": ASKED_LAYOUTS}
    asked["profile"] = forms.profiled(graph).to_json()
    if most_error is not None:
        asked["most_error"] = most_error
    # By ``original`` the plan is found from the model's page.
    answer = made_by_service(client, structure_of(graph), PASSES, **asked, original=original)
    return read_given(answer, graph, place, client, forms)


def made_by_service(
    client: Client, structure: ModelStructure, passes: Sequence[str], **more: Any
) -> Mapping[str, Any]:
    """The service's answer with a plan for the structure; ``more``: further fields of the request. Raises
    :class:`opatlas.errors.OpatlasError` if there is none."""
    wanted = {
        "structure": structure.to_json(),
        "target": client.target.to_json(),
        "setting": (client.setting or default_setting(client.target)).to_json(),
        "passes": list(passes),
        **more,
    }
    answer = client.rest.call(
        "POST", f"/api/v1/plans?wait_s={WAIT_S:g}", wanted, timeout_s=WAIT_S + client.rest.timeout_s
    )
    if not isinstance(answer, Mapping) or "plan" not in answer:
        raise ServiceError("The service has not made the plan yet: ask again later.")
    return answer


def fused_operators(plan: ModelPlan, graph: ModelGraph, *, laid_out: bool = False) -> dict[str, Operator]:
    """Operators of a checked plan, bodies included, that may not be those of single nodes in the model, by
    their keys: fused ones, and all of a laid-out form. ``laid_out``: the form is a body's."""
    found, laid_out = dict[str, Operator](), laid_out or bool(plan.nhwc)
    for step in plan.steps:
        if isinstance(step.by, ByKernel) and (len(step.nodes) > 1 or laid_out):
            found[step.by.operator] = operator_of(graph, step.nodes, step.outputs).operator
        elif isinstance(step.by, ByBodies):
            bodies = graph.nodes[step.nodes[0]].bodies
            for inner, body in zip(step.by.plans, bodies, strict=True):
                found |= fused_operators(inner, body.graph, laid_out=laid_out)
    return found
