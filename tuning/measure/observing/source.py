"""A look at a source without running it: what honest kernels have no need of. PURE.

Words are looked for outside of comments and of texts, after line splices are undone. A name that is put
together by macros is not found here; the machine code's own calls are (``tuning.measure.machine_code``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tuning.measure.observing.tokens import tokens_of

LARGE_TABLE = 256
"""Constants in one pair of braces: a polynomial has dozens, stored answers have thousands."""
LONG_TEXT = 200
"""Characters of one text: error sentences are shorter."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_CONSTANT = re.compile(r"[-+]?\(?\s*(?:0[xX][\da-fA-F.pP+-]+|\.?\d[\w.+-]*)(?:\s*\))?")
# No two of its parts match the same blanks: that would take the cube of the time.
_CAST = r"\((?:\s*\()?[\w\s]+\(\s*\*+\s*(?:\w+\s*)?\)\s*\([^()]*\)\s*\)\s*"


@dataclass(frozen=True)
class SourceFinding:
    """One thing that stands out: its name (for risk lines) and what was found."""

    name: str
    what: str


@dataclass(frozen=True)
class _Read:
    """A source without its comments; that without its texts; and those."""

    code: str
    bare: str
    texts: list[str]


_Look = Callable[[_Read], str]


def findings(source: str) -> list[SourceFinding]:
    """Everything that stands out in a source, each once."""
    read = _read(source)
    return [SourceFinding(name, what) for name, look in _LOOKS.items() if (what := look(read))]


def _read(source: str) -> _Read:
    """Raw texts are among ``bare``, too: C reads them otherwise than C++ does."""
    tokens = [(kind, " " if kind == "comment" else text) for kind, text in tokens_of(source)]
    return _Read(
        code="".join(text for _, text in tokens),
        bare="".join('""' if kind == "text" else text for kind, text in tokens),
        texts=[text for kind, text in tokens if kind in ("text", "raw")],
    )


def _words(*names: str) -> _Look:
    pattern = re.compile(rf"\b({'|'.join(names)})\b")

    def look(read: _Read) -> str:
        return ", ".join(sorted(set(pattern.findall(read.bare))))[:200]

    return look


def _incbin(read: _Read) -> str:
    return ".incbin" if re.search(r"\.\s*incbin|#\s*embed\b", read.code) else ""


def _attributes(read: _Read) -> str:
    names = re.findall(r"\b(constructor|destructor|ifunc|init_priority|section|naked)\b\W", read.bare)
    has = "__attribute__" in read.bare or "[[" in read.bare
    return ", ".join(sorted(set(names))) if has else ""


def _tables(read: _Read) -> str:
    sizes = [count for body in _BRACES.findall(read.bare) if (count := _constants(body)) >= LARGE_TABLE]
    return (
        f"{len(sizes)} of {', '.join(map(str, sorted(sizes, reverse=True)[:3]))} constants" if sizes else ""
    )


def _constants(body: str) -> int:
    if body.count(",") + 1 < LARGE_TABLE:
        return 0
    return sum(bool(_CONSTANT.fullmatch(part.strip())) for part in body.split(","))


def _long_texts(read: _Read) -> str:
    sizes = [size for text in read.texts if (size := len(text) - 2) > LONG_TEXT]
    return f"{len(sizes)} of up to {max(sizes)} characters" if sizes else ""


def _code_from_data(read: _Read) -> str:
    """A text, an array or an address by number that is cast to a function."""
    for value in (r'""', r"0[xX][\da-fA-F]+", r"(?:\(\s*)?u?int(?:ptr|64)?_t"):
        if re.search(_CAST + r"(?:\(\s*)?" + value, read.bare):
            return "a function pointer made of data"
    return ""


_LOOKS: dict[str, _Look] = {
    "assembly": _words("asm", "__asm", "__asm__"),
    "incbin": _incbin,
    "attributes": _attributes,
    "syscall": _words("syscall", "__syscall"),
    "dynamic": _words("dlopen", "dlsym", "dlvsym", "dl_iterate_phdr", "getauxval", "_r_debug"),
    "threads": _words("pthread_create", "thrd_create", "fork", "vfork", "clone", "posix_spawn", "system",
                      "popen", r"exec[lv]p?e?", "jthread", "async"),
    "clock": _words("clock_gettime", "gettimeofday", "timespec_get", "__rdtsc", "__rdtscp", "_rdtsc",
                    "__builtin_ia32_rdtsc", "__builtin_readcyclecounter", "steady_clock", "system_clock",
                    "high_resolution_clock"),
    "files": _words("fopen", "open", "openat", "freopen", "opendir", "fread", "mmap", "memfd_create",
                    "ifstream", "ofstream", "fstream", "shm_open"),
    "network": _words("socket", "connect", "bind", "sendto", "recvfrom", "getaddrinfo"),
    "signals": _words("signal", "sigaction", "raise", "kill", "setjmp", "longjmp", "sigsetjmp", "alarm",
                      "setitimer", "timer_create"),
    "protection": _words("mprotect", "pkey_mprotect", "mremap", "process_vm_readv", "process_vm_writev",
                         "ptrace", "prctl", "userfaultfd"),
    "environment": _words("getenv", "secure_getenv", "environ", "__environ", "getpid", "sched_getcpu",
                          "sched_setaffinity", "setpriority", "nice", "backtrace", "__builtin_return_address",
                          "__builtin_frame_address"),
    "code_from_data": _code_from_data,
    "tables": _tables,
    "long_texts": _long_texts,
}  # fmt: skip
