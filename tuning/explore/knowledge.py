"""What routes learn from the database, and what the database says before they publish.

Routes do not access the database. One that depends on stored kernels or past explorations is given them
before it is asked for candidates, and checked when a candidate is about to be served. Other routes are not
named here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from catalog.models import Operator as OperatorRow
from tuning.routes.base import Candidate, Route
from tuning.routes.manual.submitted import KINDS


@dataclass(frozen=True)
class Teacher:
    """Two functions by name, so that nothing is imported for a route that is never contested."""

    teach: str  # "module:function" of (route, operator row): the route that knows
    refuses: str  # "module:function" of a candidate: empty, or why nothing of it may be published now
    version: str  # "module:function" of a candidate: the number of the version that it is, None if unknown
    wrong: str  # "module:function" of (candidate, status, where, detail, worker): it was found to be wrong


_OF_KERNELS = Teacher(
    "tuning.kernels.binding:bind_approved",
    "tuning.kernels.binding:why_not_publish",
    "tuning.kernels.binding:number_of_version",
    "tuning.kernels.caught:caught_in_contest",
)
TEACHERS: Mapping[str, Teacher] = dict.fromkeys(KINDS, _OF_KERNELS)


def taught(route: Route, operator: OperatorRow) -> Route:
    """The route with everything that the database has for this operator."""
    teacher = TEACHERS.get(route.name)
    return _function(teacher.teach)(route, operator) if teacher else route


def why_not_publish(candidate: Candidate) -> str:
    """Why a candidate may not be served; empty if it may. Asked within the publishing transaction, so that a
    withdrawal comes before or after it, never in between."""
    teacher = TEACHERS.get(candidate.route)
    return _function(teacher.refuses)(candidate) if teacher else ""


def kernel_version_of(candidate: Candidate) -> int | None:
    """The version number of a hand-written kernel; None for candidates that routes wrote."""
    teacher = TEACHERS.get(candidate.route)
    return _function(teacher.version)(candidate) if teacher else None


def found_wrong(candidate: Candidate, status: str, where: str, detail: str, worker: str) -> None:
    """A candidate is not fit to be served: its owner may have more to do than withdraw it here. This is a
    transaction of its own, before the trial's: calling it twice is harmless, never calling it is not."""
    if teacher := TEACHERS.get(candidate.route):
        _function(teacher.wrong)(candidate, status, where, detail, worker)


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
