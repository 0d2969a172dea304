"""First runs that never end: in a thread that is left, and compilers that are ended."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from opatlas.dynamo.limits import TryTookTooLong, compilers_end, within


def test_what_ends_in_time_gives_and_raises_as_it_does_here() -> None:
    assert within(60.0, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(60.0, lambda: 1 / 0)


def test_what_does_not_end_is_left() -> None:
    over, ended = threading.Event(), threading.Event()
    with pytest.raises(TryTookTooLong, match=r"had not ended after 0\.05 s"):
        within(0.05, lambda: (over.wait(), ended.set()))
    over.set()
    assert ended.wait(60.0), "it goes on until it ends, and nobody is disturbed"


def test_the_thread_computes_as_this_one_does() -> None:
    def modes() -> tuple[object, ...]:
        x = torch.ones(2, 2, requires_grad=True)
        cast = (x @ x).dtype
        return (
            torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads(), cast,
            torch._inductor.config.max_autotune,
        )  # fmt: skip

    import torch._inductor.config

    for inside in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with inside, torch._inductor.config.patch(max_autotune=True):
            assert within(60.0, modes) == modes()
    assert within(60.0, modes) == modes() == (True, False, torch.get_num_threads(), torch.float32, False)


def test_a_compiler_that_does_not_end_is_ended(tmp_path: Path) -> None:
    from torch._inductor import cpp_builder
    from torch._inductor.exc import CppCompileError

    with compilers_end(0.2), pytest.raises(TryTookTooLong, match=r"the compiler had not ended after 0\.2 s"):
        cpp_builder.run_compile_cmd(
            "sh -c 'sleep 600; true'", str(tmp_path)
        )  # two processes, as compilers are
    with compilers_end(60.0):
        cpp_builder.run_compile_cmd("touch made", str(tmp_path))
        with pytest.raises(CppCompileError, match="wrong"):
            cpp_builder.run_compile_cmd("sh -c 'echo wrong; exit 1'", str(tmp_path))
    cpp_builder.run_compile_cmd("touch made_without_a_limit", str(tmp_path))
    assert {one.name for one in tmp_path.iterdir()} == {"made", "made_without_a_limit"}
