"""Candidates that gave other values than ONNX Runtime for a model, or did not end. The machine's cache keeps
them, and they are not tried again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opatlas.client.cache.store import EntryStore, digest_of
from opatlas.client.machine import LIBRARIES, installed_versions
from opatlas.graph.linked import NodeAt
from opatlas.plan.making import DEFAULT, NodeChoice
from opatlas.plan.plan import ByFramework, ByKernel, ModelPlan


class LeftOut:
    """For one model (``key``: as it was given), place and way of computing (``exact``), with these versions
    of libraries. ``store``: the machine's cache; without one only this session knows."""

    def __init__(self, store: EntryStore | None, key: str, place: tuple[str, str], exact: bool) -> None:
        self._store = store
        versions = installed_versions((*LIBRARIES, "openvino"))
        self._name = digest_of(["left out", key, *place, versions, exact])
        known = (store.fact(self._name) if store is not None else None) or {}
        self._known: Mapping[str, Any] = known

    @property
    def frameworks(self) -> frozenset[str]:
        return frozenset(self._known.get("frameworks", ()))

    @property
    def artifacts(self) -> frozenset[str]:
        """The kernels that are left out."""
        return frozenset(self._known.get("artifacts", ()))

    @property
    def simpler(self) -> bool:
        """Whether the model's simpler form is left out."""
        return bool(self._known.get("simpler"))

    def unending(self, limit_s: float) -> str:
        """Why no example is run for so many seconds; "" if one may be."""
        is_known = limit_s <= float(self._known.get("unending_s", 0.0))
        return str(self._known["unending"]) if is_known else ""

    @property
    def default(self) -> bool:
        """Whether ONNX Runtime differs from the exact values asked for, so that nothing can be compared with
        it."""
        return bool(self._known.get("default"))

    def has(self, plan: ModelPlan) -> bool:
        """Whether a plan uses any of it."""
        kernels = {by.artifact for by in plan.kernels}
        return bool(self.frameworks & _frameworks(plan) or self.artifacts & kernels)

    def without(self, choices: Mapping[NodeAt, NodeChoice]) -> dict[NodeAt, NodeChoice]:
        """The kernels that may take part."""
        return {at: one for at, one in choices.items() if one.by.artifact not in self.artifacts}

    def add(self, plan: ModelPlan, blamed: Iterable[ByKernel]) -> None:
        """Leave out what is to blame for a plan: those kernels, else the frameworks of its regions, else all
        its kernels."""
        artifacts = {by.artifact for by in blamed}
        frameworks = set() if artifacts else _frameworks(plan)
        if not artifacts and not frameworks:
            artifacts = {by.artifact for by in plan.kernels}
        known = {"frameworks": self.frameworks | frameworks, "artifacts": self.artifacts | artifacts}
        self._keep(**{what: sorted(names) for what, names in known.items()})

    def add_simpler(self) -> None:
        """The model's simpler form gives other values, whatever runs it."""
        self._keep(simpler=True)

    def add_default(self) -> None:
        """ONNX Runtime's values are not the exact ones."""
        self._keep(default=True)

    def add_example(self, reason: str, limit_s: float) -> None:
        """The session's example does not end within so many seconds."""
        self._keep(unending=reason, unending_s=limit_s)

    def _keep(self, **found: Any) -> None:
        self._known = {**self._known, **found}
        if self._store is not None:
            self._store.keep_fact(self._name, self._known)


def _frameworks(plan: ModelPlan) -> set[str]:
    return {step.by.framework for step in plan.steps if isinstance(step.by, ByFramework)} - {
        DEFAULT.framework
    }
