"""What people read of an artifact's machine code: functions, the kernel's entry first, and their loops.

Runs in a sandboxed child, as :mod:`tuning.measure.machine_code` does, by the same tools; device code needs
CUDA's ``nvdisasm``, which Triton brings along. What is kept is bounded, and says how much there is in all.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tuning.measure.machine_code import (
    PLACES,
    NotDisassembled,
    Routine,
    functions_of,
    lines_of,
    objdump,
    objdump_options,
)

MOST_LINES = 3000
"""Lines that are kept: some 100 kB of text, 15 kB packed."""
LINE_CHARACTERS = 160
MOST_LIBRARY_BYTES = 128 << 20

_ENTRIES = ("opatlas_run", "opatlas_prepare")
_LINKED_IN = ("register_tm_clones", "deregister_tm_clones", "__do_global_dtors_aux", "frame_dummy")
_FRAGMENT = re.compile(r"^\.text\.(\S+):$")
_LABEL = re.compile(r"^\s*(\.L\w+):$")
_DEVICE_STEP = re.compile(r"^\s+/\*([0-9a-f]+)\*/\s+(.+?)\s*;?\s*$")
_JUMP = re.compile(r"^\s*([0-9a-f]+):\s+j\w+\s+(?:0x)?([0-9a-f]+)\b")
_ADDRESS = re.compile(r"^\s*([0-9a-f]+):")
_VECTOR = re.compile(
    r":\s+v?(?:(?:fn?m(?:add|sub)\d*|add|sub|mul|div|max|min|sqrt|dp)p[sdh]|p(?:add|mul|madd|dp)\w+)\b"
)


def listing(file: Path) -> dict[str, Any]:
    """``{"text", "lines", "tool"}`` of a shared library (``.so``), of the one in a package (``.pt2``) or of
    device code (``.cubin``); ``lines`` counts those that were left out too. Or ``{"why_not"}``."""
    try:
        tool, routines = _device_code(file) if file.suffix == ".cubin" else _native(file)
    except NotDisassembled as error:
        return {"why_not": str(error)}
    if not routines:
        return {"why_not": "no code was found in it"}
    lines = list(_written(sorted(routines, key=_place)))
    return {"text": "\n".join(lines[:MOST_LINES]), "lines": len(lines), "tool": tool}


def _native(file: Path) -> tuple[str, list[Routine]]:
    tool = objdump()
    library = _unpacked(file) if file.suffix == ".pt2" else file
    command = [tool, *objdump_options(tool), "-C", library.name]
    return Path(tool).name, list(functions_of(lines_of(command, library.parent)))


def _unpacked(package: Path) -> Path:
    """The one library of an archive, beside it."""
    try:
        with zipfile.ZipFile(package) as archive:
            found = [entry for entry in archive.infolist() if entry.filename.endswith(".so")]
            if len(found) != 1:
                raise NotDisassembled(f"its package holds {len(found)} libraries; one is read")
            with archive.open(found[0]) as stream:
                content = stream.read(MOST_LIBRARY_BYTES + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise NotDisassembled("its package is not a readable archive") from error
    if len(content) > MOST_LIBRARY_BYTES:
        raise NotDisassembled(f"its library is larger than {MOST_LIBRARY_BYTES >> 20} MiB")
    library = package.with_suffix(".so")
    library.write_bytes(content)
    return library


def _device_code(file: Path) -> tuple[str, list[Routine]]:
    spec = find_spec("triton")  # looked for, not imported
    places = (spec and spec.submodule_search_locations) or ()
    brought = [str(Path(place) / "backends/nvidia/bin") for place in places]
    tool = shutil.which("nvdisasm", path=":".join([PLACES, "/usr/local/cuda/bin", *brought]))
    if tool is None:
        raise NotDisassembled("nvdisasm (CUDA, or Triton) is not installed on this worker")
    return "nvdisasm", list(device_functions(lines_of([tool, "-c", file.name], file.parent)))


def device_functions(lines: Iterable[str]) -> Iterator[Routine]:
    """Functions as ``nvdisasm -c`` writes them: a label, then steps and labels of jumps."""
    current: Routine | None = None
    for line in lines:
        if name := _FRAGMENT.match(line):
            if current is not None and current.instructions:
                yield current
            current = Routine(name[1])
        elif current is not None and (step := _DEVICE_STEP.match(line)):
            current.lines.append(f"{step[1]:>8}:\t{' '.join(step[2].split())}")
            current.instructions += 1
        elif current is not None and (label := _LABEL.match(line)):
            current.lines.append(f"{label[1]}:")
    if current is not None and current.instructions:
        yield current


def _place(routine: Routine) -> tuple[bool, int, int, int]:
    """The kernel's entry, then whose loop has the most vector arithmetic (a package of Inductor's is mostly
    its runtime, which is longer than any kernel); stubs of calls, and what every library has, last."""
    entry = _ENTRIES.index(routine.name) if routine.name in _ENTRIES else len(_ENTRIES)
    spans = innermost_loops(routine.lines).items()
    vector = max((_vector_steps(routine.lines[start : end + 1]) for start, end in spans), default=0)
    aside = routine.section != ".text" or routine.name in _LINKED_IN
    return aside, entry, -vector, -routine.instructions


def _written(routines: Iterable[Routine]) -> Iterator[str]:
    """Every function: its name, its steps with a line in front of each innermost loop, an empty line."""
    for routine in routines:
        loops = innermost_loops(routine.lines)
        yield f"{routine.name[:LINE_CHARACTERS]}:"
        for number, line in enumerate(routine.lines):
            if number in loops:
                yield _said_of(routine.lines[number : loops[number] + 1])
            yield line[:LINE_CHARACTERS]
        yield ""


def _said_of(loop: list[str]) -> str:
    return f"; innermost loop: {len(loop)} instructions, {_vector_steps(loop)} of them vector arithmetic"


def _vector_steps(lines: list[str]) -> int:
    return sum(1 for line in lines if _VECTOR.search(line))


def innermost_loops(lines: list[str]) -> dict[int, int]:
    """First → last line of each loop that holds no other, by the jumps back (x86)."""
    places = {found[1]: number for number, line in enumerate(lines) if (found := _ADDRESS.match(line))}
    loops, latest = {}, -1
    for end, line in enumerate(lines):
        jump = _JUMP.match(line)
        start = places.get(jump[2].lstrip("0")) if jump else None
        if start is not None and latest < start <= end:
            loops[start] = end
        if start is not None and start <= end:
            latest = max(latest, start)
    return loops
