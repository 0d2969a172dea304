"""The Triton route: templates of ours with their configurations, compiled to cubins without a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.load.needs import installed_version
from tuning.routes.base import Answer, BuiltArtifact, Candidate, KnownLimit, No, RouteError, answer
from tuning.routes.compiler.base import CompilerRoute
from tuning.routes.compiler.triton.launch import Configuration, Template
from tuning.routes.compiler.triton.templates import TEMPLATES
from tuning.routes.handed_out import HandsOut

NAME = "triton"
BY_NAME = {template.name: template for template in TEMPLATES}
LONG_ROWS = 1 << 16


class TritonRoute(HandsOut, CompilerRoute):
    """One launch an operator. The same template compiles for every architecture that Triton knows."""

    name = zygote = NAME
    title = "Triton"
    kinds: tuple[str, ...] = ("cuda",)
    preload: tuple[str, ...] = ("tuning.routes.compiler.triton.compile",)
    limits = (
        KnownLimit(
            "A Triton reduction is one launch: few rows that are long leave most multiprocessors idle.",
            lambda operator: _few_long_rows(operator),
            "on targets with CUDA",
        ),
    )

    def versions(self) -> Mapping[str, str]:
        version = installed_version("triton")
        return {"triton": version} if version else {}

    def available(self, target: Target) -> Answer:
        if reason := self.foreign(target):
            return No(reason)
        if not self.versions():
            return No("triton is not installed: pip install -r requirements-cuda.txt")
        return answer(None, f"Triton {self.versions()['triton']}")

    def foreign(self, target: Target) -> str | None:
        if target.kind not in self.kinds:
            return f"{self.title} is for targets of kind {' or '.join(self.kinds)}, not {target.kind}"
        return None

    def missing(self, operator: Operator) -> str | None:
        reasons = {template: template.missing(operator) for template in TEMPLATES}
        if None in reasons.values():
            return None
        # The one that says most is that of the template which is for the first node's type.
        meant = [template for template in TEMPLATES if operator.nodes[0].op in template.types]
        return reasons[(meant or TEMPLATES[-1:])[0]]

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if setting.accumulate not in ("float16", "bfloat16", "float32"):
            return No(f"the Triton templates keep sums in float32, not {setting.accumulate}")
        return super().supports(operator, setting)

    def space(self, operator: Operator, target: Target, setting: Setting) -> Iterator[Candidate]:
        for template in TEMPLATES:
            if template.missing(operator) is None:
                for configuration in template.configurations(operator, target, setting):
                    parameters = {"template": template.name, "configuration": dict(configuration)}
                    yield Candidate(NAME, parameters, f"{template.name}, {words(configuration)}")

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        from tuning.routes.compiler.triton.compile import build_module

        with self.refusing(operator, "Triton cannot compile it"):
            template, configuration = read(candidate.parameters)
            if reason := template.missing(operator):
                raise RouteError(reason)
            launch = template.launch(operator, setting, configuration)
            return build_module(operator, target, setting, launch, configuration, workdir)


def words(configuration: Configuration) -> str:
    """``block 64 × 128 × 32, 4 warps, 3 stages``."""
    blocks = [str(value) for name, value in configuration.items() if name.startswith("block")]
    said = [f"block {' × '.join(blocks)}"]
    if configuration.get("group", 1) > 1:
        said.append(f"groups of {configuration['group']}")
    said.append(f"{configuration['warps']} warps" if configuration["warps"] > 1 else "one warp")
    if configuration["stages"] > 1:
        said.append(f"{configuration['stages']} stages")
    if configuration.get("split", 1) > 1:
        said.append(f"in {configuration['split']} parts")
    if configuration.get("tma"):
        said.append("TMA")
    return ", ".join(said)


def read(parameters: Mapping[str, Any]) -> tuple[Template, Configuration]:
    """A candidate's parameters; raises RouteError for what is none."""
    template = BY_NAME.get(str(parameters.get("template")))
    configuration = parameters.get("configuration")
    if template is None or not isinstance(configuration, Mapping):
        raise RouteError(f"a Triton candidate names one of {', '.join(BY_NAME)} and its configuration")
    return template, {str(name): int(value) for name, value in configuration.items()}


def _few_long_rows(operator: Operator) -> bool:
    if len(operator.nodes) != 1 or not operator.nodes[0].op.startswith("Reduce"):
        return False
    made, read_elements = 1, 1
    for size in operator.output_values[0].shape:
        made *= size
    for size in operator.inputs[0].shape:
        read_elements *= size
    return made <= 16 and read_elements // max(1, made) >= LONG_ROWS
