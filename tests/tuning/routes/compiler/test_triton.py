"""Triton's templates: compiled for every architecture that we name, and computed by Triton's interpreter,
both without a GPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opatlas.identity import Setting, Target, detect_target, parse_operator
from opatlas.load.cuda.plan import LaunchPlan
from tests import by_day
from tests.catalog.making import GPU
from tests.configuring import configured
from tests.tuning.routes.compiler.triton_cases import CASES, half, tensor
from tests.tuning.routes.compiler.triton_interpreted import first_of_each
from tuning.measure.laboratory import Laboratory
from tuning.routes.base import MOST_MEASURED, Budget, BuiltArtifact, Candidate, No, RouteError
from tuning.routes.compiler.triton.route import BY_NAME, NAME, TritonRoute
from tuning.routes.handed_out import AT_ONCE

ROOT = Path(__file__).resolve().parents[4]
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
ROUTE = TritonRoute()
SETTING = Setting()
COMPILED = ("product of halves", "softmax, long", "layer norm", "mean, middle", "chain, spread")
"""One of each template; attention, which takes longest, has a test of its own."""
SMALL_ATTENTION = {"block_q": 16, "block_k": 16, "warps": 1, "stages": 1, "split": 1, "tma": 0}
PLAIN = {"group": 1, "split": 1, "tma": 0, "programs": 0}

pytestmark = [pytest.mark.slow, pytest.mark.group("triton")]


def on(arch: str) -> Target:
    return Target.from_json({**GPU.to_json(), "arch": arch})


@pytest.fixture(scope="module", autouse=True)
def interpreter() -> Iterator[subprocess.Popen[str]]:
    """Begun first, joined last: it takes seconds, and so does compiling."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.tuning.routes.compiler.triton_interpreted"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def built(name: str, arch: str, folder: Path, configuration: dict[str, int] | None = None) -> BuiltArtifact:
    template, document = CASES[name]
    operator, target = parse_operator(document), on(arch)
    first = next(iter(ROUTE.candidates(operator, target, SETTING, Budget(1.0))))
    parameters = dict(first.parameters)
    assert parameters["template"] == template
    if configuration:
        parameters["configuration"] = configuration
    return ROUTE.build(operator, target, SETTING, Candidate(NAME, parameters, "this"), folder)


@pytest.mark.parametrize("arch", by_day.first(1, ARCHITECTURES))
@pytest.mark.parametrize("name", [*COMPILED, "attention"])
def test_every_template_compiles_for_every_architecture(name: str, arch: str, tmp_path: Path) -> None:
    made = built(name, arch, tmp_path, SMALL_ATTENTION if name == "attention" else None)
    operator = parse_operator(CASES[name][1])
    plan = LaunchPlan.from_json(made.manifest.launch, operator)
    plan.check_device(arch, 13000)
    assert (tmp_path / "kernel.cubin").read_bytes()[:4] == b"\x7fELF"
    (launch,) = plan.run
    assert f".visible .entry {launch.function}(" in made.schedule
    assert f".reqntid {launch.block[0]}" in made.schedule
    parameters = made.schedule.partition(".entry")[2].partition(")")[0].count(".param")
    assert len(launch.arguments) == parameters
    scratch = [argument.is_address for argument in launch.arguments][-2:]
    assert scratch == ["cp.async.bulk.tensor" in made.schedule, False], "descriptors of tensors lie there"
    (used,) = made.facts["functions"].values()
    assert 0 < used["registers"] <= 255


@pytest.mark.slow
def test_every_template_computes_what_the_operator_says(interpreter: subprocess.Popen[str]) -> None:
    said, complaints = interpreter.communicate(timeout=240)
    assert interpreter.returncode == 0, complaints[-2000:]
    errors = json.loads(said)
    assert set(errors) == set(CASES)
    assert {name: error for name, error in errors.items() if error > 1} == {}
    assert {template for template, _ in CASES.values()} == set(BY_NAME)


@pytest.mark.parametrize("template", ["product", "attention"])
def test_the_cases_are_computed_in_parts_and_by_tma_too(template: str) -> None:
    """What the interpreter is given is each way that there is."""
    ways = set()
    for name, document in CASES.values():
        if name == template:
            operator = parse_operator(document)
            ways |= set(first_of_each([*BY_NAME[name].configurations(operator, GPU, SETTING)]).values())
    assert ways == {(False, 0), (True, 0), (False, 1), (True, 1)}


def test_older_devices_have_no_tma() -> None:
    operator = parse_operator(CASES["product, deep"][1])
    assert {one["tma"] for one in BY_NAME["product"].configurations(operator, on("sm_80"), SETTING)} == {0}


@pytest.mark.parametrize("arch", by_day.first(1, ("sm_90", "sm_100")))
@pytest.mark.parametrize("name", by_day.first(1, ("product, deep", "attention, one query")))
def test_what_is_in_parts_is_two_launches_of_one_kernel(name: str, arch: str, tmp_path: Path) -> None:
    template, document = CASES[name]
    operator = parse_operator(document)
    configuration = next(
        one
        for one in BY_NAME[template].configurations(operator, on(arch), SETTING)
        if one["split"] > 1 and one["tma"]
    )
    made = built(name, arch, tmp_path, dict(configuration))
    plan = LaunchPlan.from_json(made.manifest.launch, operator)
    first, second = plan.run
    assert first.function == second.function
    phases = [[one.value for one in launch.arguments if one.what == "int32"] for launch in plan.run]
    assert phases == [[0], [1]]
    assert math.prod(first.grid) > math.prod(second.grid)
    sums, descriptors = (one.value for one in first.arguments if one.what == "workspace")
    assert (sums, int(descriptors) % 128) == (0, 0)
    assert plan.workspace_bytes > int(descriptors) > 0
    assert "cp.async.bulk.tensor" in made.schedule


def test_strict_products_are_not_rounded_to_tf32(tmp_path: Path) -> None:
    operator = parse_operator({"op": "MatMul", "inputs": [tensor(64, 64), tensor(64, 64)]})
    used = {}
    for setting in (Setting(), Setting(tf32=True)):
        (tmp_path / f"{setting.tf32}").mkdir()
        configuration = {**PLAIN, "block_m": 32, "block_n": 32, "block_k": 32, "warps": 4, "stages": 2}
        candidate = Candidate(NAME, {"template": "product", "configuration": configuration}, "this")
        made = ROUTE.build(operator, on("sm_80"), setting, candidate, tmp_path / f"{setting.tf32}")
        used[setting.tf32] = ".tf32" in made.schedule
    assert used == {False: False, True: True}


def test_the_space_is_walked_by_tuning_where_the_contest_stopped(tmp_path: Path) -> None:
    operator = parse_operator({"op": "MatMul", "inputs": [half(4096, 4096), half(4096, 4096)]})
    first = list(ROUTE.candidates(operator, GPU, SETTING, Budget(1.0)))
    seen = [candidate.parameters for candidate in first]
    assert len(seen) == AT_ONCE
    while found := list(ROUTE.tune(operator, GPU, SETTING, tmp_path, 1.0)):
        assert len(found) <= MOST_MEASURED, "no slice comes back to the others"
        seen += [candidate.parameters for candidate in found]
    assert seen == [candidate.parameters for candidate in ROUTE.space(operator, GPU, SETTING)]
    assert len({json.dumps(parameters) for parameters in seen}) == len(seen) > 2 * AT_ONCE
    assert first[0].parameters["configuration"]["block_m"] >= 128, "large blocks first for a large product"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"op": "MatMul", "inputs": [tensor(4, 4, dtype="float64")] * 2}, "have no float64"),
        ({"op": "MatMul", "inputs": [tensor(4), tensor(4, 4)]}, "vectors of one dimension"),
        ({"op": "Softmax", "inputs": [tensor(4, 6, strides=[1, 4])]}, "dense tensors only"),
        ({"op": "ReduceSum", "inputs": [tensor(4, 6, 2), {"shape": [2], "dtype": "int64", "data": [0, 2]}]},
         "do not lie beside each other"),
        ({"op": "Attention", "attrs": {"softcap": 3.0}, "inputs": [tensor(1, 1, 8, 16)] * 3}, "a cap"),
        ({"op": "Acos", "inputs": [tensor(4, 6)]}, "have no Acos"),
    ],
)  # fmt: skip
def test_what_it_cannot_express_is_refused_with_the_reason(document: dict[str, Any], words: str) -> None:
    answer = ROUTE.supports(parse_operator(document), SETTING)
    assert isinstance(answer, No)
    assert words in answer.reason


def test_a_block_that_is_too_large_for_the_device_is_refused(tmp_path: Path) -> None:
    configuration = {**PLAIN, "block_m": 128, "block_n": 256, "block_k": 64, "warps": 8, "stages": 5}
    operator = parse_operator({"op": "MatMul", "inputs": [half(512, 512), half(512, 512)]})
    candidate = Candidate(NAME, {"template": "product", "configuration": configuration}, "too large")
    with pytest.raises(RouteError, match=r"bytes of shared memory; sm_86 has fewer"):
        ROUTE.build(operator, on("sm_86"), SETTING, candidate, tmp_path)


def test_it_is_for_gpus_and_says_so() -> None:
    refusal = ROUTE.available(detect_target())
    assert isinstance(refusal, No)
    assert "targets of kind cuda" in refusal.reason
    assert ROUTE.available(GPU), ROUTE.available(GPU)


def test_it_is_built_in_the_sandbox(tmp_path: Path) -> None:
    template, document = CASES["choice"]
    operator = parse_operator(document)
    (tmp_path / "work").mkdir()
    with configured(lock=tmp_path / "lock"), Laboratory(tmp_path, GPU) as lab:
        candidate = next(ROUTE.space(operator, GPU, SETTING))
        made = lab.build(ROUTE, operator, SETTING, candidate, tmp_path / "work")
        assert isinstance(made, BuiltArtifact), made
        assert (made.folder / "kernel.cubin").read_bytes()[:4] == b"\x7fELF"
        assert made.manifest.kind == "cuda-module"
        assert "tl.where(v0 != 0" in made.source
        assert template == "chain"
