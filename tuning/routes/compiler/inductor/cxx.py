"""The C++ side of Inductor, made fast: what is the same for every operator is compiled once.

As it comes, AOTInductor spends 36 s on a first operator and 5 s on each further one. It tries out vector
instructions by compiling test programs, parses PyTorch's headers, and compiles the same 600 lines of runtime
into every package, most of it ``std::regex`` for one device name. Here the instructions come from the
target's features, the headers are precompiled once, and so is the runtime, which is then linked.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from opatlas.conf import conf
from opatlas.identity import Target, compiler_flags
from tuning.routes.base import RouteError

PATCHED_TORCH = "2.13.0"
"""The version whose generated code and headers were read; another one compiles everything, unpatched."""

_MODEL_BASE = "torch/csrc/inductor/aoti_runtime/model_base.h"
_WRAPPER_HEADER = "torch/csrc/inductor/aoti_include/cpu.h"
_KERNEL_HEADER = "torch/csrc/inductor/cpp_prefix.h"
_DEVICE_PARSER = re.compile(
    r"inline void parse_device_str\(\s*const std::string& device_str,\s*int32_t& device_type,\s*"
    r"int32_t& device_idx\) \{\n.*?\n\}\n",
    re.DOTALL,
)
_DECLARED = "void parse_device_str(const std::string&, int32_t&, int32_t&);\n"
_PARSER = """
namespace torch::aot_inductor {
void parse_device_str(const std::string& device, int32_t& type, int32_t& index) {
  AOTI_RUNTIME_CHECK(device == "cpu", "Invalid device: " + device);
  type = aoti_torch_device_type_cpu();
  index = -1;
}
}
"""


def find_cxx() -> str | None:
    """The C++ compiler that Inductor calls: ``CXX``, else g++ or clang++."""
    for name in (conf().cxx, "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    return None


def used_features(target: Target) -> tuple[str, ...]:
    """The target's raw features that the compiler is told of, so that code may use them."""
    return tuple(
        sorted(name for name in target.features if compiler_flags(replace(target, features=(name,))))
    )


def vector_bits(target: Target) -> int:
    """The widest vectors that Inductor's code can use on the target: 512, 256, or 0 for plain loops."""
    have = set(target.features)
    if {"avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"} <= have:
        return 512
    return 256 if {"avx2", "fma", "f16c"} <= have else 0


@dataclass
class Compiler:
    """What stands in for Inductor's own way of calling the compiler. ``shared`` is a folder that several
    builds have in common: what one has compiled there, the next one finds."""

    target: Target
    shared: Path
    seconds: dict[str, float] = field(default_factory=dict)
    _wrapper_flags: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Inductor compiles through this object."""
        from torch._inductor import cpp_builder, cpu_vec_isa
        from torch._inductor.codegen import cpp_wrapper_cpu

        def vector_isas() -> list[Any]:
            return _vector_isas(self.target)

        saved: list[tuple[Any, str, Any]] = []

        def put(owner: Any, name: str, value: Any) -> None:
            saved.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

        put(cpp_builder, "_run_compile_cmd", self.run)
        put(cpu_vec_isa, "valid_vec_isa_list", vector_isas)
        put(cpu_vec_isa.VecISA, "check_build", lambda *_: True)
        if self.shares_runtime():
            put(cpp_wrapper_cpu.CppWrapperCpu, "_write_aoti_interface_header", _declare_interface)
        try:
            yield
        finally:
            for owner, name, value in reversed(saved):
                setattr(owner, name, value)

    def shares_runtime(self) -> bool:
        """Whether this PyTorch's runtime can be compiled apart from the models."""
        return _torch_version() == PATCHED_TORCH and _slim_header() is not None

    def run(self, command: str, cwd: str) -> None:
        """One command of Inductor's, with precompiled headers and the shared runtime."""
        words = shlex.split(command)
        output = words[words.index("-o") + 1] if "-o" in words else ""
        started = time.perf_counter()
        flags = [f"-I{self._slim_folder()}"] if self.shares_runtime() else []
        flags += [*compiler_flags(self.target), "-mtune=native"]
        if output.endswith(".so") and self._wrapper_flags and self.shares_runtime():
            words.insert(1, str(self._runtime_object(words[0])))
        elif output.endswith((".wrapper.o", ".kernel.o")):
            wrapper = output.endswith(".wrapper.o")
            flags += _plain_flags(words)
            header = self._precompiled(_WRAPPER_HEADER if wrapper else _KERNEL_HEADER, flags, words[0])
            flags = ["-include", str(header), *flags]
            self._wrapper_flags = flags if wrapper else self._wrapper_flags
            words = [words[0], *(word for word in words[1:] if word.endswith(".cpp")), "-c", "-o", output]
        _call([words[0], *flags, *words[1:]], cwd)
        part = "link" if output.endswith(".so") else Path(output).suffixes[0][1:] if output else "other"
        self.seconds[part] = round(self.seconds.get(part, 0.0) + time.perf_counter() - started, 3)

    def _precompiled(self, header: str, flags: Sequence[str], compiler: str) -> Path:
        made = self.shared / f"{_digest([compiler, header, *flags])}.h"
        with _locked(made):
            if not made.with_suffix(".h.gch").exists():
                made.write_text(f"#include <{header}>\n")
                partial = f"{made}.partial"
                _call([compiler, "-x", "c++-header", str(made), *flags, "-o", partial], str(self.shared))
                Path(partial).replace(made.with_suffix(".h.gch"))
        return made

    def _runtime_object(self, compiler: str) -> Path:
        """The interface of every model, compiled like a model's own code."""
        made = self.shared / f"{_digest([compiler, *self._wrapper_flags])}.runtime.o"
        with _locked(made):
            if not made.exists():
                source = made.with_suffix(".cpp")
                source.write_text(f"#include <{_WRAPPER_HEADER}>\n{_interface_source()}\n{_PARSER}")
                partial = f"{made}.partial"
                flags = [*self._wrapper_flags, "-c", str(source), "-o", partial]
                _call([compiler, *flags], str(self.shared))
                Path(partial).replace(made)
        return made

    def _slim_folder(self) -> Path:
        """An include folder with the one header whose ``std::regex`` costs seconds in every compilation."""
        folder = self.shared / "include"
        header = folder / _MODEL_BASE
        if not header.exists():
            header.parent.mkdir(parents=True, exist_ok=True)
            partial = header.with_suffix(f".{os.getpid()}")
            partial.write_text(_slim_header() or "")
            partial.replace(header)
        return folder


def _declare_interface(wrapper: Any) -> None:
    """In place of the interface's definitions, which are linked: what else its file brings in."""
    wrapper.header.splice(
        "#include <torch/csrc/inductor/aoti_runtime/model_container.h>\n#include <iostream>\n\n"
    )


def _vector_isas(target: Target) -> list[Any]:
    from torch._inductor import cpu_vec_isa

    bits = vector_bits(target)
    if bits == 512:
        with_vnni = "avx512_vnni" in target.features
        return [cpu_vec_isa.VecAVX512VNNI() if with_vnni else cpu_vec_isa.VecAVX512()]
    return [cpu_vec_isa.VecAVX2()] if bits == 256 else []


def _torch_version() -> str:
    import torch

    return str(torch.__version__).partition("+")[0]


def _torch_folder() -> Path:
    import torch

    return Path(torch.__file__).parent


def _slim_header() -> str | None:
    """The header with the device parser only declared; None where it is not as it was read."""
    text = (_torch_folder() / "include" / _MODEL_BASE).read_text()
    slim, found = _DEVICE_PARSER.subn(_DECLARED, text)
    return slim if found == 1 else None


def _interface_source() -> str:
    return (_torch_folder() / "_inductor/codegen/aoti_runtime/interface.cpp").read_text()


def _plain_flags(words: Sequence[str]) -> list[str]:
    """A command's options without its files."""
    kept, skip = [], False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in ("-o", "-include"):
            skip = True
        elif word != "-c" and not word.startswith("/"):
            kept.append(word)
    return kept


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join((_torch_version(), *words)).encode()).hexdigest()[:24]


@contextlib.contextmanager
def _locked(made: Path) -> Iterator[None]:
    made.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{made}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _call(words: Sequence[str], cwd: str) -> None:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise RouteError(f"the C++ compiler failed: {' '.join(tail[:1])[:400]}")
