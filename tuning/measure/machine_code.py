"""A compiled library as people and risk lines read it: functions, what it calls, what stands out.

Runs in a sandboxed child, which disassembles with binutils' ``objdump`` (it comes with the compiler) or
LLVM's. What the library holds is counted over all of it; the text that is kept is bounded, and functions in
which something stands out come first, so that padding hides none of them. A linear disassembly does not see
code that is jumped into in the middle of an instruction, nor code that is made at run time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_TEXT = 256 << 10
"""Characters of assembly that are kept."""
MOST_READ = 64 << 20
MOST_NAMES = 200

PLACES = "/usr/local/bin:/usr/bin:/bin"
_TOOLS = ("objdump", "llvm-objdump")

NOTABLE = {
    "syscall": "system call", "sysenter": "system call", "int": "system call", "svc": "system call",
    "rdtsc": "clock", "rdtscp": "clock", "rdpmc": "performance counter", "cpuid": "processor identification",
    "xgetbv": "processor identification", "rdrand": "random number", "rdseed": "random number",
    "clflush": "cache flush", "clflushopt": "cache flush", "clwb": "cache flush", "wbinvd": "cache flush",
    "ldmxcsr": "rounding mode", "fldcw": "rounding mode", "in": "port", "out": "port",
    "%clock": "clock", "%clock_hi": "clock", "%clock64": "clock", "%globaltimer": "clock",
    "%globaltimer_lo": "clock", "%smid": "processor identification", "%warpid": "processor identification",
    "wrfsbase": "thread pointer", "wrgsbase": "thread pointer", "xbegin": "transaction", "hlt": "port",
}  # fmt: skip
"""Instructions, and special registers of PTX, that no computation needs, and what they are for."""
_LABEL = re.compile(r"^([0-9a-f]+) <(.+)>:$")
_STEP = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)(.*)$")
_SECTION = "Disassembly of section "
_PADDING = ("nop", "nopw", "nopl", "xchg", "data16", "cs", "int3")
_ENDS = ("ret", "retq", "ud2")
_PREFIXES = ("bnd", "notrack", "rep", "repz", "repnz", "lock", "cs", "ds", "data16", "addr32")


class NotDisassembled(Exception):
    """Why not: one sentence."""


@dataclass
class Routine:
    """A piece of machine code between two labels, or between two paddings where labels were stripped."""

    name: str
    section: str = ".text"
    lines: list[str] = field(default_factory=list)
    notable: Counter[str] = field(default_factory=Counter)
    instructions: int = 0

    @property
    def text(self) -> str:
        return "\n".join([f"{self.name}:", *self.lines])


def describe(library: Path) -> dict[str, Any]:
    """``{"assembly", "code"}`` of a shared library; ``code["why_not"]`` says why there is none."""
    try:
        tool = objdump()
        functions = list(functions_of(lines_of([tool, *objdump_options(tool), library.name], library.parent)))
        imports = imports_of(lines_of([tool, "-T", library.name], library.parent))
        sections = sections_of(lines_of([tool, "-h", library.name], library.parent))
        relocations = "".join(lines_of([tool, "-R", library.name], library.parent))
    except NotDisassembled as error:
        return {"assembly": "", "code": {"why_not": str(error)}}
    text, left_out = kept(functions)
    notable: Counter[str] = Counter()
    for function in functions:
        notable.update(function.notable)
    code = {
        "tool": Path(tool).name,
        "functions": len(functions),
        "left_out": left_out,
        "instructions": sum(function.instructions for function in functions),
        "imports": sorted(imports)[:MOST_NAMES],
        "more_imports": max(0, len(imports) - MOST_NAMES),
        "notable": dict(notable),
        "constructors": max(0, sections.get(".init_array", 0) // 8 - 1)  # the compiler's own frame_dummy
        + sections.get(".preinit_array", 0) // 8
        + relocations.count("IRELATIV"),
        "data_bytes": sum(sections.get(name, 0) for name in (".rodata", ".data", ".data.rel.ro")),
        "code_bytes": sections.get(".text", 0),
    }
    return {"assembly": text, "code": code}


def functions_of(lines: Iterable[str]) -> Iterator[Routine]:
    """Functions of a disassembly, in the order of their addresses."""
    current: Routine | None = None
    ended = padded = False
    section = ""
    for line in lines:
        if line.startswith(_SECTION):
            section = line.removeprefix(_SECTION).rstrip(":")
        if label := _LABEL.match(line):
            if current is not None and current.lines:
                yield current
            current, ended, padded = Routine(_name(label[2], label[1]), section), False, False
            continue
        step = _STEP.match(line)
        if step is None or current is None:
            continue
        name = _instruction(step[2], step[3])
        if ended and _pads(name):
            padded = True
            continue
        if padded and current.lines:
            yield current
            current = Routine(_name("", step[1]), section)
        ended, padded = name in _ENDS, False
        current.lines.append(line.rstrip())
        current.instructions += 1
        if name in NOTABLE:
            current.notable[name] += 1
    if current is not None and current.lines:
        yield current


def _name(label: str, address: str) -> str:
    """As the library exports it; by its address where the label is another function's and a distance."""
    plain = label.replace("@@Base", "")
    if not plain or re.search(r"[-+]0x[0-9a-f]+$", plain):
        return f"local function at 0x{address.lstrip('0')}"
    return plain


def imports_of(lines: Iterable[str]) -> set[str]:
    """Names that the library takes from others, of ``objdump -T``."""
    found = set()
    for line in lines:
        if "*UND*" in line:
            name = line.split()[-1]
            found.add(name.partition("@")[0])
    return found - {
        "__gmon_start__",
        "_ITM_deregisterTMCloneTable",
        "_ITM_registerTMCloneTable",
        "__cxa_finalize",
    }


def sections_of(lines: Iterable[str]) -> dict[str, int]:
    """Section → bytes, of ``objdump -h``."""
    found = {}
    for line in lines:
        fields = line.split()
        if len(fields) > 3 and fields[0].isdigit():
            found[fields[1]] = int(fields[2], 16)
    return found


def kept(functions: list[Routine]) -> tuple[str, int]:
    """At most MOST_TEXT characters, whole functions: those in which something stands out first, then the
    exported ones, then by their addresses; and how many are left out."""
    order = sorted(
        range(len(functions)),
        key=lambda i: (
            not any(functions[i].notable.values()),
            functions[i].section != ".text",
            functions[i].name[:8] != "opatlas_",
            i,
        ),
    )
    used, taken = 0, list[str]()
    for index in order:
        text = functions[index].text
        if used + len(text) + 2 > MOST_TEXT and taken:
            continue
        taken.append(text[:MOST_TEXT])
        used += len(taken[-1]) + 2
    return "\n\n".join(taken), len(functions) - len(taken)


def _instruction(name: str, rest: str) -> str:
    while name in _PREFIXES and rest.strip():
        name, _, rest = rest.strip().partition(" ")
    return name


def _pads(name: str) -> bool:
    return name in _PADDING or name.startswith("nop")


def objdump_options(tool: str) -> list[str]:
    """Steps without their bytes, as Intel writes them, each on one line."""
    return ["-d", "--no-show-raw-insn", "-M", "intel", *(["-w"] if Path(tool).name == "objdump" else [])]


def objdump() -> str:
    """Where it lies; raises :class:`NotDisassembled`."""
    for name in _TOOLS:
        if found := shutil.which(name, path=PLACES):
            return found
    raise NotDisassembled("neither objdump (binutils) nor llvm-objdump is installed on this worker")


def lines_of(command: list[str], folder: Path) -> Iterator[str]:
    """What a tool writes, bounded; raises :class:`NotDisassembled` where it does not end well."""
    try:
        with subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, errors="replace",
        ) as process:  # fmt: skip
            assert process.stdout is not None
            read = 0
            for line in process.stdout:
                read += len(line)
                if read > MOST_READ:
                    process.kill()
                    raise NotDisassembled(f"its disassembly is longer than {MOST_READ >> 20} MiB")
                yield line.rstrip("\n")
    except OSError as error:
        raise NotDisassembled(f"{Path(command[0]).name} does not start: {error.strerror}") from error
    if process.returncode:
        raise NotDisassembled(f"{Path(command[0]).name} cannot read the library")
