"""What is told of a library's error: no place on this machine, no code, no traceback."""

from __future__ import annotations

import time

import pytest

from opatlas.errors import first_line, without_paths, without_traces

LAYOUT = (
    "[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: "
    "/onnxruntime_src/onnxruntime/core/providers/cpu/rnn/lstm_base.h:53 "
    "onnxruntime::LSTMBase::LSTMBase(const onnxruntime::OpKernelInfo&) layout_ == 0 was false. "
    "Batchwise recurrent operations (layout == 1) are not supported."
)
TRACE = """building
Traceback (most recent call last):
  File "/srv/opatlas/tuning/routes/base.py", line 12, in build
    raise RouteError("no")
tuning.routes.base.RouteError: no

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/opatlas/.venv/lib/python3.11/site-packages/onnx/checker.py", line 1, in check
    check(model)
ValueError: the model is wrong
done"""


def test_a_librarys_line_is_told_without_its_codes_and_sources() -> None:
    told = first_line(RuntimeError(LAYOUT))
    assert told == (
        "Exception during initialization: layout_ == 0 was false. "
        "Batchwise recurrent operations (layout == 1) are not supported."
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/tmp/work-7/kernel.c:12: error: no", "kernel.c:12: error: no"),
        ("cannot open '/var/lib/opatlas/store/ab.so'", "cannot open 'ab.so'"),
        ("see https://opatlas.example/docs/a/b", "see https://opatlas.example/docs/a/b"),
        ("3/4 of 1/2 and/or GB/s", "3/4 of 1/2 and/or GB/s"),
        ("in /usr/lib/", "in …"),
        ("error:/srv/app/x.py bad", "error:x.py bad"),
        ("g++ -I/srv/app/include '-L/usr/lib/x' -isystem/usr/inc/c", "g++ -Iinclude '-Lx' -isystemc"),
        ("-I/srv/app/include", "-Iinclude"),
        ("in /srv/app:/usr/lib/x", "in app:x"),
    ],
)
def test_files_are_told_by_name(said: str, told: str) -> None:
    assert without_paths(said) == told


def test_what_is_no_place_on_a_machine_stays() -> None:
    for said in ("s3://store/a/b, http://host:80/a/b", "ops/a/b.py, ./a/b, ../a/b, <a/b/c> and CUDA-I/O/b"):
        assert without_paths(said) == said


@pytest.mark.parametrize("said", ["/a.h:1 (", "/a.h", "/.h:1", "/", "=/a", "(/aa", ":/a.h:1 [with "])
def test_an_endless_line_is_told_at_once(said: str) -> None:
    began = time.process_time()
    assert len(first_line(RuntimeError(said * 100_000))) <= 300
    without_paths(said * 20_000)
    assert time.process_time() - began < 2


def test_of_a_traceback_its_last_line_is_left() -> None:
    whole = "building\ntuning.routes.base.RouteError: no\n\nValueError: the model is wrong\ndone"
    assert without_traces(TRACE).replace("\n\n\n", "\n\n") == whole
    middle = TRACE[TRACE.index('  File "/home') :]  # a log's tail begins where it was cut
    assert without_traces(middle) == "ValueError: the model is wrong\ndone"
