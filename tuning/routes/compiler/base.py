"""What the routes of the compilers share: whom they serve, and what becomes of a compiler's failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opatlas.errors import first_line
from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import Answer, KnownLimit, Method, RouteError, answer, foreign_kind


class CompilerRoute:
    """A compiler's route says its name, its limits, its candidates and how it builds them.

    Pages count whom ``limits`` and the refusals of ``missing`` concern (``tuning/statistics/limits.py``).
    """

    name: str
    title: str  # as people write it
    method: Method = "compiler"
    kinds: tuple[str, ...] = ("cpu",)
    builds_in_process = False
    limits: tuple[KnownLimit, ...] = ()

    def missing(self, operator: Operator) -> str | None:
        """Why it cannot express the operator; None where nothing is known against it."""
        raise NotImplementedError

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        return answer(self.missing(operator))

    def foreign(self, target: Target) -> str | None:
        """Why it has no code for the target; None where it has."""
        if reason := foreign_kind(self.title, self.kinds, target):
            return reason
        if target.isa == "x86_64":
            return None
        return f"the {self.title} route compiles for x86-64 processors, not for {target.isa}"

    @contextmanager
    def refusing(self, operator: Operator, failure: str) -> Iterator[None]:
        """Refuse what the route cannot express; what the compiler raises becomes ``failure: its message``."""
        if reason := self.missing(operator):
            raise RouteError(reason)
        try:
            yield
        except RouteError:
            raise
        except Exception as error:  # compilers' errors share no base but Exception
            raise RouteError(f"{failure}: {self.message(error)}") from error

    def message(self, error: Exception) -> str:
        """The line of an error that says what it was."""
        return first_line(error, 400)
