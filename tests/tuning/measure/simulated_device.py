"""Routes of the simulated device, and what they build: modules that say what they do, and for how long."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, Method, No, Yes, answer

SETTING = Setting()


def artifact(
    folder: Path,
    operator: Operator,
    does: str,
    us: float,
    route: str = "cuda",
    setting: Setting = SETTING,
) -> BuiltArtifact:
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"functions": {"relu": does}, "us": us}).encode()
    (folder / "relu.cubin").write_bytes(content)
    count = math.prod(operator.inputs[0].shape)
    launch: dict[str, Any] = {
        "function": "relu",
        "grid": [-(-count // 256), 1, 1],
        "block": [256, 1, 1],
        "shared_bytes": 0,
        "arguments": [{"input": 0}, {"output": 0}, {"int32": count}],
    }
    scratch_bytes = 4 * count if does == "left_over" else 0
    if scratch_bytes:
        launch["arguments"] = [*launch["arguments"], {"workspace": 0}]
    plan = {
        "module": "relu.cubin",
        "arch": "sm_90",
        "driver": 12080,
        "workspace_bytes": scratch_bytes,
        "packed_bytes": [],
        "prepare": [],
        "run": [launch],
    }
    manifest = Manifest(
        kind="cuda-module",
        route=route,
        operator=operator.to_json(),
        setting=setting.to_json(),
        files={"relu.cubin": hashlib.sha256(content).hexdigest()},
        launch=plan,
    )
    return BuiltArtifact(manifest, folder)


@dataclass
class SimulatedRoute:
    """A route whose kernels do what ``does`` says (``tests.opatlas.load.cuda.simulated.KERNELS``)."""

    name: str = "eager"
    us: float = 500
    does: str = "relu"
    method: Method = "library"
    zygote: str = "cuda"
    preload: tuple[str, ...] = ("tests.opatlas.load.cuda.simulated:install",)
    builds_in_process: bool = True

    def versions(self) -> Mapping[str, str]:
        return {"simulated": "1"}

    def available(self, target: Target) -> Answer:
        return (
            Yes() if target.kind == "cuda" else No(f"this device is simulated; the target is {target.kind}")
        )

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        return answer(None if operator.op_types == ("Relu",) else f"{self.name} knows Relu only")

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        yield Candidate(self.name, {"does": self.does, "us": self.us}, self.does)

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        given: Mapping[str, Any] = candidate.parameters
        return artifact(workdir, operator, given["does"], given["us"], self.name)
