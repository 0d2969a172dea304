"""The Halide route: three autoschedulers, and a schedule of ours, over one lowering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, No, RouteError, answer
from tuning.routes.compiler.base import CompilerRoute
from tuning.routes.compiler.halide.table import VERSION, installed_version, limit
from tuning.routes.compiler.halide.variants import LAYOUTS, SCHEDULERS, variants

NAME = "halide"


class HalideRoute(CompilerRoute):
    """Halide on x86-64; artifacts need neither Halide nor Python."""

    name = zygote = NAME
    title = "Halide"
    preload: tuple[str, ...] = (
        "tuning.routes.compiler.halide.machine:import_halide",
        "tuning.routes.compiler.halide.compile",
        "tuning.routes.compiler.halide.product_schedule",
    )

    def versions(self) -> Mapping[str, str]:
        found = installed_version()
        return {"halide": found} if found else {}

    def available(self, target: Target) -> Answer:
        found = installed_version()
        if found is None:
            return No(f"halide is not installed: pip install halide=={VERSION}")
        if found != VERSION:
            return No(f"the Halide route is written for halide {VERSION}; here it is {found}")
        return answer(self.foreign(target), f"Halide {found}")

    def missing(self, operator: Operator) -> str | None:
        return limit(operator)

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        for scheduler, layout, label in variants(operator)[: budget.candidates]:
            yield Candidate(NAME, {"scheduler": scheduler, "layout": layout}, label)

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        from tuning.routes.compiler.halide.compile import build_artifact

        scheduler, layout = (str(candidate.parameters[name]) for name in ("scheduler", "layout"))
        with self.refusing(operator, f"Halide with {scheduler} cannot compile it"):
            if scheduler not in SCHEDULERS or layout not in LAYOUTS:
                raise RouteError(f"no schedule is called {scheduler} with {layout} innermost")
            return build_artifact(operator, target, setting, scheduler, layout, workdir)
