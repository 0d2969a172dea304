"""The Halide route: three autoschedulers, and a schedule of ours, over one lowering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, Method, No, RouteError, Yes
from tuning.routes.compiler.halide.table import VERSION, installed_version, limit
from tuning.routes.compiler.halide.variants import LAYOUTS, SCHEDULERS, variants

NAME = "halide"


class HalideRoute:
    """Halide on x86-64; artifacts need neither Halide nor Python."""

    name = NAME
    method: Method = "compiler"
    zygote = "halide"
    preload: tuple[str, ...] = (
        "tuning.routes.compiler.halide.machine:import_halide",
        "tuning.routes.compiler.halide.compile",
        "tuning.routes.compiler.halide.product_schedule",
    )
    builds_in_process = False

    def versions(self) -> Mapping[str, str]:
        found = installed_version()
        return {"halide": found} if found else {}

    def available(self, target: Target) -> Answer:
        found = installed_version()
        if found is None:
            return No(f"halide is not installed: pip install halide=={VERSION}")
        if found != VERSION:
            return No(f"the Halide route is written for halide {VERSION}; here it is {found}")
        if target.kind != "cpu" or target.isa != "x86_64":
            return No(f"the Halide route compiles for x86-64 processors, not for {target.kind} {target.isa}")
        return Yes(f"Halide {found}")

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        reason = limit(operator)
        return No(reason) if reason else Yes()

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        for scheduler, layout, label in variants(operator)[: budget.candidates]:
            yield Candidate(NAME, {"scheduler": scheduler, "layout": layout}, label)

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        from tuning.routes.compiler.halide.compile import build_artifact, sentence

        answer = self.supports(operator, setting)
        if isinstance(answer, No):
            raise RouteError(answer.reason)
        scheduler, layout = (str(candidate.parameters[name]) for name in ("scheduler", "layout"))
        if scheduler not in SCHEDULERS or layout not in LAYOUTS:
            raise RouteError(f"no schedule is called {scheduler} with {layout} innermost")
        try:
            return build_artifact(operator, target, setting, scheduler, layout, workdir)
        except RouteError:
            raise
        except Exception as error:  # the bindings raise plain RuntimeErrors beside HalideError
            raise RouteError(f"Halide with {scheduler} cannot compile it: {sentence(error)}") from error
