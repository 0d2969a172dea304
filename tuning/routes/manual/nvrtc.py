"""CUDA C++ device code → a cubin, by NVRTC: no driver, no nvcc, no host compiler.

NVRTC comes as a wheel (``nvidia-cuda-nvrtc``) and is called through ``cuda-bindings``; both need no GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.load.needs import installed_version
from tuning.routes.base import RouteError
from tuning.routes.cuda_headers import include_folders
from tuning.routes.manual.compiling import LOG_CHARACTERS, first_error
from tuning.routes.manual.scanning import without_comments

DISTRIBUTIONS = ("cuda-bindings", "nvidia-cuda-nvrtc")
ALWAYS = ("--std=c++17", "--device-as-default-execution-space", "--ptxas-options=-v", "--no-cache")
OF_CUDA = ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")
_INCLUDE = re.compile(
    r"^[ \t\v\f]*(?:#|%:)\s*(?:include|include_next|import|embed)\b(.*)|(__has_(?:include|embed)\w*)",
    re.MULTILINE,
)
_USED = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores,"
    r" (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class DeviceCode:
    """A cubin for one architecture, with what there is to show of it. ``functions``: registers a thread,
    bytes that it spills and keeps on the stack, bytes of shared memory that a block has without asking."""

    cubin: bytes
    ptx: str
    log: str
    functions: Mapping[str, Mapping[str, int]]


def versions() -> dict[str, str]:
    """Empty where not all of it is installed."""
    found = {name: installed_version(name) for name in DISTRIBUTIONS}
    return {name: version for name, version in found.items() if version} if all(found.values()) else {}


def compile_device_code(
    source: str, headers: Mapping[str, str], arch: str, flags: Sequence[str] = ()
) -> DeviceCode:
    """``headers``: name → text, all that may be included beside NVRTC's own. Raises :class:`RouteError` with
    the compiler's first error; the whole log goes to stdout (the trial's log)."""
    from cuda.bindings import nvrtc

    _refuse_other_files(source, headers)

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        error, *answer = function(*arguments)
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RouteError(f"NVRTC answers {error.name} to {function.__name__}")
        return answer[0] if answer else None

    def text(size: Callable[..., Any], read: Callable[..., Any]) -> bytes:
        room = b"\0" * ask(size, program)
        ask(read, program, room)
        return room

    texts, names = [one.encode() for one in headers.values()], [name.encode() for name in headers]
    program = ask(nvrtc.nvrtcCreateProgram, source.encode(), b"kernel.cu", len(texts), texts, names)
    included = [f"--include-path={folder}" for folder in include_folders()]
    try:
        options = [option.encode() for option in (f"--gpu-architecture={arch}", *ALWAYS, *included, *flags)]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        said = text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        log = said.rstrip(b"\0").decode(errors="replace")[-LOG_CHARACTERS:]
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            print(log)
            raise RouteError(f"it does not compile: {first_error(log)}")
        return DeviceCode(
            cubin=text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
            ptx=text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).rstrip(b"\0").decode(errors="replace"),
            log=log,
            functions=_functions(log),
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _refuse_other_files(source: str, headers: Mapping[str, str]) -> None:
    """The compiler's messages would show what is in them."""
    allowed = [*(f'"{name}"' for name in headers), *(f"<{name}>" for name in OF_CUDA)]
    for file, question in _INCLUDE.findall(without_comments(source)):
        said = question or file.strip()
        if said not in allowed:
            raise RouteError(f"it includes {said[:100]}: only {', '.join(allowed)} may be included")


def _functions(log: str) -> dict[str, dict[str, int]]:
    return {
        name: {
            "registers": int(used),
            "spilled_bytes": int(stores) + int(loads),
            "stack_bytes": int(stack),
            "shared_bytes": sum(map(int, _SHARED.findall(more))),
        }
        for name, stack, stores, loads, used, more in _USED.findall(log)
    }
