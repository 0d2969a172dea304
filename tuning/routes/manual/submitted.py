"""What somebody submitted, as a route is given it; and what the routes of submitted kernels share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import Answer, Budget, Candidate, Method, No, Yes, foreign_kind
from tuning.routes.manual.flags import features_of
from tuning.routes.manual.matching import Pattern

MAX_SOURCE_BYTES = 128 << 10
ROUTES: Mapping[str, str] = {"c": "cpp", "c++": "cpp", "cuda": "cuda"}
"""Language → the route that contests kernels written in it."""
KINDS: Mapping[str, str] = {"cpp": "cpu", "cuda": "cuda"}
"""Route → the kind of target that its kernels run on."""


@dataclass(frozen=True)
class SubmittedKernel:
    """One version of a kernel, with all that compiling it takes.

    ``pk`` is its number in the service that keeps it, 0 where none does: names change, and two organisations
    may have a kernel of one name. ``launch`` is device code's launch template
    (:mod:`tuning.routes.manual.launch_template`); the other languages have none."""

    pk: int
    name: str
    version: int
    language: str
    source: str
    flags: tuple[str, ...]
    pattern: Pattern
    launch: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        return f"{self.name} v{self.version}"

    @property
    def route(self) -> str:
        return ROUTES[self.language]

    def candidate(self) -> Candidate:
        """The candidate that this kernel is, whatever the operator: its code is part of it."""
        parameters = {
            **({"kernel_version": self.pk} if self.pk else {}),
            "kernel": self.name,
            "version": self.version,
            "language": self.language,
            "flags": list(self.flags),
            "source": self.source,
            **({} if self.launch is None else {"launch": dict(self.launch)}),
        }
        return Candidate(self.route, parameters, self.label)


def missing_features(flags: Iterable[str], target: Target) -> tuple[str, ...]:
    """What code compiled with these flags needs, and this processor does not have."""
    has = set(target.features)
    return tuple(feature for feature in features_of(tuple(flags)) if feature not in has)


def runs_on(language: str, flags: Iterable[str], target: Target) -> bool:
    """Whether a kernel in this language, compiled with these flags, is for the target at all."""
    return KINDS[ROUTES[language]] == target.kind and not missing_features(flags, target)


class SubmittedRoute:
    """A route of kernels that people submitted. Which ones there are, a worker binds with
    :meth:`with_kernels`."""

    name: str
    kinds: tuple[str, ...]
    method: Method = "manual"
    builds_in_process = False

    def __init__(self, kernels: Iterable[SubmittedKernel] = ()) -> None:
        self.kernels = tuple(kernels)

    def with_kernels(self, kernels: Iterable[SubmittedKernel]) -> Self:
        """The same route, with those of these kernels that are its own to contest."""
        return type(self)(kernel for kernel in kernels if kernel.route == self.name)

    def foreign(self, target: Target) -> str | None:
        """Why its kernels do not run on the target; None where they do."""
        return foreign_kind(self.name, self.kinds, target)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if any(not kernel.pattern.refuses(operator) for kernel in self.kernels):
            return Yes()
        return No("no approved kernel serves it")

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        """Every bound kernel that matches and that this target can run: people chose them, so none is left
        out for the budget's sake."""
        for kernel in self.kernels:
            if not kernel.pattern.refuses(operator) and runs_on(kernel.language, kernel.flags, target):
                yield kernel.candidate()
