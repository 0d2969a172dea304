"""The XLA route: one exported StableHLO program for each way of writing an operator down."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from opatlas.load.xla.table import VARIANTS, missing, variants
from tuning.routes.base import (
    Answer,
    Budget,
    BuiltArtifact,
    Candidate,
    KnownLimit,
    No,
    RouteError,
    answer,
    foreign_kind,
)
from tuning.routes.compiler.base import CompilerRoute

NAME = "xla"
PROGRAM, OPTIONS = "kernel.stablehlo", "options.json"
DISTRIBUTIONS = ("jax", "jaxlib")
LONGEST_TEXT = 2_000_000
"""Characters of generated code that are kept."""


def warm() -> None:
    """Import what builds and loads need (the lowering imports the loader); starts no thread."""
    from opatlas.load.xla.lower import import_families

    import_families()


class XlaRoute(CompilerRoute):
    """XLA on CPUs, through JAX; artifacts need exactly this JAX to load."""

    name = zygote = NAME
    title = "XLA"
    preload: tuple[str, ...] = ("jax", "tuning.routes.compiler.xla:warm")
    limits = (
        KnownLimit(
            "XLA's pool has as many threads as the setting, and the thread that calls works too: where "
            "every core has one they crowd each other, and times come out noisy. XLA makes parallel code "
            "for no smaller pool.",
            lambda operator: missing(operator) is None,
            "with a thread for every core, and more than one",
        ),
    )

    def versions(self) -> Mapping[str, str]:
        try:
            return {name: metadata.version(name) for name in DISTRIBUTIONS}
        except metadata.PackageNotFoundError:
            return {}

    def available(self, target: Target) -> Answer:
        found = self.versions()
        if not found:
            return No("JAX is not installed: pip install jax==0.10.2 jaxlib==0.10.2")
        if found["jax"] != found["jaxlib"]:
            return No(f"jax {found['jax']} does not go with jaxlib {found['jaxlib']}")
        return answer(foreign_kind(self.title, self.kinds, target), f"JAX {found['jax']}")

    def missing(self, operator: Operator) -> str | None:
        return missing(operator)

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        names = variants(operator)
        found: list[tuple[dict[str, Any], str]] = [({"variant": name}, VARIANTS[name]) for name in names]
        if "avx512f" in target.features and names[0] != "product":
            # LLVM prefers half of what the processor has; loops over exponentials gain from all of it.
            wide: dict[str, Any] = {"variant": names[0], "vector_bits": 512}
            found.append((wide, f"{VARIANTS[names[0]]}, vectors of 512 bits"))
        for parameters, label in found[: budget.candidates]:
            yield Candidate(NAME, parameters, label)

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        parameters, options = candidate.parameters, {}
        if "vector_bits" in parameters:
            options["xla_cpu_prefer_vector_width"] = str(parameters["vector_bits"])
        with self.refusing(operator, "XLA cannot compile it"):
            if parameters["variant"] not in VARIANTS:
                raise RouteError(f"there is no variant {parameters['variant']!r}")
            return _build(operator, setting, str(parameters["variant"]), options, workdir, self.versions())


def _build(
    operator: Operator,
    setting: Setting,
    variant: str,
    options: Mapping[str, str],
    workdir: Path,
    versions: Mapping[str, str],
) -> BuiltArtifact:
    import jax
    import jax.export

    from opatlas.load.package_stablehlo import compile_program
    from opatlas.load.xla.lower import arguments, lowered

    jax.config.update("jax_platforms", "cpu")  # this child's alone; nothing else is looked for
    started = time.perf_counter()
    with jax.enable_x64(True):
        export = jax.export.export(jax.jit(lowered(operator, variant), keep_unused=True), platforms=["cpu"])
        # Arguments that are not read stay: the loader gives every tensor input of the operator.
        exported = export(*arguments(operator))
    program = exported.mlir_module()
    exported_at = time.perf_counter()
    executable = compile_program(program, setting.threads, options)
    compiled_at = time.perf_counter()
    contents = {PROGRAM: bytes(exported.serialize())}
    if options:
        contents[OPTIONS] = json.dumps(options, sort_keys=True).encode()
    for name, content in contents.items():
        (workdir / name).write_bytes(content)
    manifest = Manifest(
        kind="package",
        route=NAME,
        operator=operator.to_json(),
        setting=setting.to_json(),
        files={name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        needs=dict(versions),
    )
    facts = {
        "export_s": round(exported_at - started, 4),
        "compile_s": round(compiled_at - exported_at, 4),
        "options": dict(options),
        "versions": dict(versions),
    }
    hlo = "\n".join(module.to_string() for module in executable.hlo_modules())
    return BuiltArtifact(manifest, workdir, hlo[:LONGEST_TEXT], program[:LONGEST_TEXT], facts)
