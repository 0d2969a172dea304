"""What ran a model fastest on this machine, kept in its cache between sessions: the plan, and which
frameworks are worth trying again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from opatlas.client.cache.store import EntryStore, digest_of
from opatlas.client.machine import LIBRARIES, installed_versions
from opatlas.conf import conf
from opatlas.errors import CallerError
from opatlas.graph.normal import ModelGraph
from opatlas.plan.checking import check_plan
from opatlas.plan.choosing import OTHERS
from opatlas.plan.line_up import UNDECIDED, TimedInTurns
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import ModelPlan
from opatlas.plan.regions import is_installed
from opatlas.plan.said import whole_said
from opatlas.plan.semantics import table as semantics
from opatlas.session.kernels_by_threads import KernelsByThreads
from opatlas.session.left_out import LeftOut

log = logging.getLogger("opatlas")
RIVAL = 0.8
"""A framework below this share of the fastest's speed is not tried again with other kernels."""


def tried_frameworks(named: Sequence[str]) -> tuple[str, ...]:
    """The installed ones of these frameworks, in the order of trying; raises
    :class:`opatlas.errors.CallerError` for an unknown one."""
    if unknown := [one for one in named if one not in OTHERS]:
        raise CallerError(f"There is no framework {unknown[0]!r} to try; there are {', '.join(OTHERS)}.")
    return tuple(one for one in OTHERS if one in named and is_installed(one))


class KeptChoice:
    """The choice for one model, place, set of kernels (``fused`` ones included) and ``frameworks``.
    ``store``: the machine's cache; without one nothing is kept. ``exact``: the choice was among exact
    candidates."""

    def __init__(
        self,
        store: EntryStore | None,
        graph: ModelGraph,
        place: tuple[str, str],
        frameworks: tuple[str, ...],
        kernels: KernelsByThreads,
        fused: Sequence[NodeChoice],
        left_out: LeftOut,
        exact: bool = False,
    ) -> None:
        self._store, self._graph, self._place = store, graph, place
        self._frameworks, self._kernels, self._fused = frameworks, kernels, fused
        self._left_out, self._exact = left_out, exact

    @property
    def is_open(self) -> bool:
        """Whether anything but ONNX Runtime could be chosen."""
        return bool(self._kernels.own.choices or self._fused or self._frameworks)

    def plan(self) -> ModelPlan | None:
        """The plan chosen from the same kernels, frameworks and libraries. Raises
        :class:`opatlas.plan.plan.InvalidPlan` if it no longer fits the model."""
        kept = self._store.fact(self._name()) if self._store is not None else None
        if kept is None:
            return None
        plan = ModelPlan.from_json(kept.get("plan"))
        if self._left_out.has(plan):
            return None
        check_plan(plan, self._graph, *self._place)
        known = [self._kernels.own]
        for threads, artifacts in kept.get("fewer", {}).items():
            if (on := self._kernels.on(int(threads))) is None or on.artifacts != artifacts:
                return None
            known.append(on)
        return plan if all(any(one.has(by) for one in known) for by in plan.kernels) else None

    def rivals(self) -> tuple[str, ...]:
        """The frameworks worth trying: at first all of them; with other kernels, those that were not far
        behind. Loading a slow one takes seconds to minutes and changes nothing."""
        kept = self._store.fact(self._rivals_name()) if self._store is not None else None
        may = [one for one in self._frameworks if one not in self._left_out.frameworks]
        return tuple(one for one in may if kept is None or one in kept["rivals"])

    def keep(self, plan: ModelPlan, standings: Sequence[TimedInTurns]) -> None:
        """Keep the choice, unless the host was too busy for a clear one."""
        if self._store is None:
            return
        if any(one.ratios.ratio > UNDECIDED and one.ratios.low <= 1 for one in standings):
            log.warning("Too busy a host to say what runs the model fastest: asked again next time.")
            return
        fewer = {str(threads): artifacts for threads, artifacts in self._kernels.on_fewer.items()}
        self._store.keep_fact(self._name(), {"plan": plan.to_json(), "fewer": fewer})
        by_name = {one.said: one.ratios for one in standings}
        fastest = max((ratios.ratio for ratios in by_name.values()), default=1.0)
        rivals = [
            one
            for one in self._frameworks
            if (ratios := by_name.get(whole_said(one))) is not None and ratios.high >= RIVAL * fastest
        ]
        self._store.keep_fact(self._rivals_name(), {"rivals": rivals})

    def _name(self) -> bytes:
        artifacts = {*self._kernels.own.artifacts, *(one.by.artifact for one in self._fused)}
        return self._fact_of("plan, kernels inside too", sorted(artifacts))

    def _rivals_name(self) -> bytes:
        return self._fact_of("rivals", conf().loading_s)

    def _fact_of(self, what: str, more: Any) -> bytes:
        """The cache's key for a fact about this model, machine and set of libraries."""
        versions = installed_versions((*LIBRARIES, "openvino"))
        known = (versions, semantics.digest())
        exact = ["exact"] * self._exact  # names of what was kept without stay
        return digest_of([what, self._graph.key, *self._place, *known, self._frameworks, more, *exact])
