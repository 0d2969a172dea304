"""The route: candidates rebuild from plain JSON, flags and includes are held to what is allowed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.identity import Operator, Setting, detect_target, parse_operator
from opatlas.load import load
from opatlas.load.toolchain import find_compiler
from tuning.routes.base import Budget, Candidate, RouteError
from tuning.routes.manual.cpp import CppRoute
from tuning.routes.manual.flags import OF_DEVICE_CODE, OF_PROCESSORS, InvalidFlags, check_flags, features_of
from tuning.routes.manual.header import header
from tuning.routes.manual.matching import parse_pattern
from tuning.routes.manual.submitted import MAX_SOURCE_BYTES, SubmittedKernel
from tuning.routes.registry import route

TARGET, SETTING = detect_target(), Setting(threads=1)
RELU = parse_operator({"op": "Relu", "inputs": [{"shape": [5, 7], "dtype": "float32"}]})
SOURCE = """
#include "opatlas_operator.h"
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const IN0_TYPE* x = t[0].data;
  OUT0_TYPE* y = t[1].data;
  for (int i = 0; i < IN0_SIZE; i++) y[i] = x[i] > 0 ? x[i] : 0;
  return 0;
}
"""
CPP = """
#include <algorithm>
#include <vector>
#include "opatlas_operator.h"
template <typename T> static T relu(T x) { return std::max(x, T(0)); }
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  std::vector<float> copy((float*)t[0].data, (float*)t[0].data + IN0_SIZE);
  std::transform(copy.begin(), copy.end(), (float*)t[1].data, relu<float>);
  return 0;
}
"""


def kernel(source: str = SOURCE, language: str = "c", flags: tuple[str, ...] = ("-O3",)) -> SubmittedKernel:
    return SubmittedKernel(0, "relu", 1, language, source, flags, parse_pattern({"op": "Relu"}))


def build(one: SubmittedKernel, folder: Path, operator: Operator = RELU, **changed: Any) -> Any:
    parameters = json.loads(json.dumps({**one.candidate().parameters, **changed}))
    candidate = Candidate("cpp", parameters, one.label)
    return route("cpp").build(operator, TARGET, SETTING, candidate, folder)


@pytest.mark.parametrize(("source", "language"), [(SOURCE, "c"), (CPP, "c++")])
def test_a_candidate_is_rebuilt_from_its_json_and_computes(
    source: str, language: str, tmp_path: Path
) -> None:
    try:
        find_compiler(language)
    except Exception as error:
        pytest.skip(str(error))
    artifact = build(kernel(source, language), tmp_path)
    assert artifact.source == source and artifact.manifest.kind == "c-abi"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernel.so"]
    loaded = load(artifact.manifest, artifact.folder)
    x = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)
    loaded.prepare({})
    bound = loaded.bind({0: x})
    bound()
    np.testing.assert_array_equal(bound.outputs()[0], np.maximum(x, 0))
    loaded.close()


def test_only_bound_kernels_that_match_are_candidates() -> None:
    budget = Budget(seconds=1)
    other = parse_operator({"op": "Abs", "inputs": [{"shape": [5], "dtype": "float32"}]})
    bound = CppRoute().with_kernels([kernel()])
    assert [one.label for one in bound.candidates(RELU, TARGET, SETTING, budget)] == ["relu v1"]
    assert bound.supports(RELU, SETTING) and not bound.supports(other, SETTING)
    assert list(bound.candidates(other, TARGET, SETTING, budget)) == []
    assert not CppRoute().supports(RELU, SETTING)
    without = replace(TARGET, features=())
    wide = CppRoute([kernel(flags=("-mavx2",))])
    assert list(wide.candidates(RELU, without, SETTING, budget)) == []


REACHING_OUT = (
    *("-fplugin=x.so", "-I/etc", "-L/", "-lssl", "@/etc/passwd", "-Wl,-z,now", "-specs=x", "-wrapper"),
    *("-B/tmp", "-include", "-o", "-march=native", "-x", "-fdump-tree-all", "-O3 -I/etc", "-D", ""),
)


@pytest.mark.parametrize("flag", REACHING_OUT)
def test_a_flag_that_could_reach_out_is_refused(flag: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidFlags, match="not allowed"):
        check_flags([flag], "c")
    with pytest.raises(RouteError, match="not allowed"):
        build(kernel(), tmp_path, flags=[flag])


def test_flags_say_what_the_code_needs() -> None:
    assert features_of(["-O3", "-mavx2", "-mfma"]) == ("avx", "avx2", "fma")
    assert check_flags(["-O3", "-O3"], "c") == ("-O3",)
    with pytest.raises(InvalidFlags, match="is not for c:"):
        check_flags(["-std=c++17"], "c")
    with pytest.raises(InvalidFlags, match="language"):
        check_flags([], "rust")
    assert not any(
        flag.startswith(("-I", "-L", "-l", "@", "-Wl", "-fplugin"))
        for flag in (*OF_PROCESSORS, *OF_DEVICE_CODE)
    )


@pytest.mark.parametrize(
    "include",
    [
        '#include "/etc/passwd"',
        '#define HERE "/etc/passwd"\n#include HERE',
        "#include </etc/passwd>",
        '#include "../../../../../../../../etc/passwd"',
        "#include <../../etc/passwd>",
        '#include "/proc/self/environ"',
    ],
)
def test_no_file_but_a_header_is_read_by_the_compiler(
    include: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RouteError) as refusal:
        build(kernel(f"{include}\n{SOURCE}"), tmp_path)
    said = str(refusal.value) + "".join(capfd.readouterr())
    assert "root:" not in said and "PATH=" not in said and "daemon" not in said


def test_errors_of_a_build_are_one_sentence_and_name_no_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for source, reason in (
        (SOURCE.replace("return 0;", "return x y;"), "does not compile"),
        (SOURCE.replace("return 0;", "extern int gone(void); return gone();"), "undefined reference"),
        ("#include <no_such_header.h>\n" + SOURCE, "No such file"),
        ("x" * (MAX_SOURCE_BYTES + 1), "larger than 128 KiB"),
    ):
        with pytest.raises(RouteError, match=reason) as refusal:
            build(kernel(source), tmp_path)
        said = str(refusal.value) + "".join(capfd.readouterr())
        assert str(tmp_path) not in said and "/opatlas/load" not in said


def test_what_the_processor_lacks_is_no_candidate(tmp_path: Path) -> None:
    candidate = kernel(flags=("-mavx512fp16",)).candidate()
    without = replace(TARGET, features=("avx2",))
    with pytest.raises(RouteError, match="avx512_fp16"):
        CppRoute().build(RELU, without, SETTING, candidate, tmp_path)


def test_the_header_gives_shapes_strides_attributes_and_texts() -> None:
    conv = parse_operator(
        {
            "op": "Conv",
            "attrs": {"group": 1, "pads": [1, 2, 3, 4], "strides": [2, 2], "kernel_shape": [3, 3]},
            "inputs": [
                {"shape": [1, 2, 9, 9], "dtype": "float32", "strides": [162, 1, 18, 2]},
                {"shape": [4, 2, 3, 3], "dtype": "float32", "role": "const"},
            ],
        }
    )
    lines = header(conv, Setting(threads=2)).splitlines()
    for line in (
        '#define OPATLAS_OP "Conv"', "#define OPATLAS_THREADS 2", "#define OPATLAS_INPUTS 2",
        "#define OPATLAS_CONSTANTS 1", "#define IN0_STRIDE1 1", "#define IN0_DENSE 0", "#define IN1_CONST 1",
        "#define IN1_LAST1 3", "#define ATTR_PADS_COUNT 4", "#define ATTR_PADS_3 (4)",
        "#define ATTR_STRIDES_0 (2)", "#define OUT0_RANK 4",
    ):  # fmt: skip
        assert line in lines


def test_fast_math_in_a_kernel_leaves_everybody_elses_numbers_alone(tmp_path: Path) -> None:
    """Linked with that flag, a library would switch denormals off in the process that loads it."""
    build(kernel(flags=("-O3", "-ffast-math")), tmp_path)
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(float(sys.argv[2]) * 1.0 > 0)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "kernel.so"), "5e-324"],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "True"
