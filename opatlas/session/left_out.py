"""What has been seen to give other values than ONNX Runtime for a model, or not to end, as the machine's
cache keeps it: it takes no further part here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opatlas.client.cache.store import EntryStore, digest_of
from opatlas.client.machine import LIBRARIES, installed_versions
from opatlas.graph.linked import NodeAt
from opatlas.plan.making import DEFAULT, NodeChoice
from opatlas.plan.plan import ByFramework, ByKernel, ModelPlan


class LeftOut:
    """Of one model (``key``: as it is given), place, and way of computing (``exact``), with these versions of
    libraries. ``store``: the machine's cache; without one it is known to this session alone."""

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
        """Kernels'."""
        return frozenset(self._known.get("artifacts", ()))

    @property
    def simpler(self) -> bool:
        """The model's simpler form."""
        return bool(self._known.get("simpler"))

    def unending(self, limit_s: float) -> str:
        """Why no example is run for so many seconds; "" where one may be."""
        is_known = limit_s <= float(self._known.get("unending_s", 0.0))
        return str(self._known["unending"]) if is_known else ""

    @property
    def default(self) -> bool:
        """ONNX Runtime itself, where exact values are asked for: nobody can be held against it."""
        return bool(self._known.get("default"))

    def has(self, plan: ModelPlan) -> bool:
        """Whether any of it is part of a plan."""
        kernels = {by.artifact for by in plan.kernels}
        return bool(self.frameworks & _frameworks(plan) or self.artifacts & kernels)

    def without(self, choices: Mapping[NodeAt, NodeChoice]) -> dict[NodeAt, NodeChoice]:
        """The kernels that may take part."""
        return {at: one for at, one in choices.items() if one.by.artifact not in self.artifacts}

    def add(self, plan: ModelPlan, blamed: Iterable[ByKernel]) -> None:
        """What a plan is left out for: the kernels that are to blame, else the frameworks that it leaves
        nodes to, else all its kernels."""
        artifacts = {by.artifact for by in blamed}
        frameworks = set() if artifacts else _frameworks(plan)
        if not artifacts and not frameworks:
            artifacts = {by.artifact for by in plan.kernels}
        known = {"frameworks": self.frameworks | frameworks, "artifacts": self.artifacts | artifacts}
        self._keep(**{what: sorted(names) for what, names in known.items()})

    def add_simpler(self) -> None:
        """The model's simpler form gives other values, whoever runs it."""
        self._keep(simpler=True)

    def add_default(self) -> None:
        """ONNX Runtime gives other values than are exact."""
        self._keep(default=True)

    def add_example(self, reason: str, limit_s: float) -> None:
        """The session's own example does not end within so many seconds."""
        self._keep(unending=reason, unending_s=limit_s)

    def _keep(self, **found: Any) -> None:
        self._known = {**self._known, **found}
        if self._store is not None:
            self._store.keep_fact(self._name, self._known)


def _frameworks(plan: ModelPlan) -> set[str]:
    return {step.by.framework for step in plan.steps if isinstance(step.by, ByFramework)} - {
        DEFAULT.framework
    }
