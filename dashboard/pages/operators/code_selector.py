"""The readable texts of one implementation: source, schedule, recipe, manifest, and its files' contents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.best.artifacts import file_path
from catalog.best.machine_code import code_of
from catalog.line_diff import unified_diff
from catalog.models import Implementation
from dashboard.pages.operators.assembly import comparable
from dashboard.pages.operators.elf import LibraryFunctions, read_library
from dashboard.web.highlighting import Code, highlighted

# Route → what its schedule and its source are, for people who meet them here first.
_SAYS = {
    "tvm": ("The schedule as a trace that can be applied again", "Generated: the scheduled TensorIR"),
    "halide": ("Schedule of each Func", "Generated: Halide's lowered statements"),
    "xla": ("Generated: the HLO that XLA made", "StableHLO that was compiled"),
    "inductor": ("Options of the compiler", "Generated: the C++ of the graph's kernels"),
    "triton": ("Generated: the PTX", "The template and its configuration"),
    "cpp": ("How it is compiled", "The kernel as it was submitted"),
    "cuda": ("Generated: the PTX", "The kernel as it was submitted"),
}
# (route, part) → the lexer that suits it best, and what the language is called: Pygments knows no MLIR.
_LANGUAGES = {
    ("halide", "schedule"): ("cpp", "Halide's C++"),
    ("halide", "source"): ("c", "Halide statements"),
    ("inductor", "source"): ("cpp", "C++"),
    ("triton", "schedule"): ("ptx", "PTX"),
    ("triton", "source"): ("python", "Triton"),
    ("cuda", "schedule"): ("ptx", "PTX"),
    ("cuda", "source"): ("cuda", "CUDA C++"),
    ("xla", "schedule"): ("llvm", "HLO"),
    ("xla", "source"): ("llvm", "MLIR"),
}

MOST_COMPARED = 1500
"""Lines of a text that are compared; longer differences are unreadable."""


@dataclass(frozen=True)
class Text:
    """One text: ``part`` names it in the raw download's address."""

    part: str
    title: str
    says: str
    code: Code
    characters: int


@dataclass(frozen=True)
class ArtifactFile:
    """A file of the artifact. ``size_bytes`` None: the store has lost it."""

    name: str
    sha256: str
    size_bytes: int | None
    library: LibraryFunctions | None = None  # what a shared library defines


def texts(row: Implementation) -> list[Text]:
    """The texts that it was made of, and how."""
    schedule_says, source_says = _SAYS.get(row.route, ("", ""))
    return _those(row, [("source", "Source", source_says), ("schedule", "Schedule", schedule_says)])


def descriptions(row: Implementation) -> list[Text]:
    """How it is loaded, and what is checked before."""
    recipe = "Recipe" if row.artifact.manifest.get("recipe") else "Candidate"
    checked = "What is checked before anything is loaded"
    return _those(row, [("recipe", recipe, ""), ("manifest", "Manifest", checked)])


def _those(row: Implementation, parts: Sequence[tuple[str, str, str]]) -> list[Text]:
    found = []
    for part, title, says in parts:
        if text := raw(row, part):
            lexer, name = _LANGUAGES.get((row.route, part), ("", ""))
            code = highlighted(text, lexer)
            code = replace(code, language=name or code.language)
            found.append(Text(part, title, says, code, len(text)))
    return found


def raw(row: Implementation, part: str) -> str:
    """One of the texts, unchanged; empty if there is none."""
    if part == "schedule":
        return row.schedule
    if part == "source":
        return row.source
    if part == "machine_code":
        return code_of(row).text
    if part == "recipe":
        return json.dumps(row.artifact.manifest.get("recipe") or row.candidate, indent=2, ensure_ascii=False)
    if part == "manifest":
        return json.dumps(row.artifact.manifest, indent=2, ensure_ascii=False)
    return ""


@dataclass(frozen=True)
class CodeDifference:
    """One implementation's code against another's. ``cut``: only the beginnings were compared."""

    part: str
    code: Code
    cut: bool

    @property
    def title(self) -> str:
        return self.part.replace("_", " ").capitalize()


def difference(row: Implementation, other: Implementation) -> list[CodeDifference]:
    """From ``other`` to ``row``, for texts that both have and that differ."""
    found = []
    for part in ("source", "schedule", "machine_code", "recipe"):
        texts = [
            comparable(raw(one, part)) if part == "machine_code" else raw(one, part) for one in (other, row)
        ]
        before, after = (text.splitlines()[:MOST_COMPARED] for text in texts)
        lines = unified_diff(before, after, str(other), str(row))
        if lines and before and after:
            cut = any(len(text.splitlines()) > MOST_COMPARED for text in texts)
            found.append(CodeDifference(part, highlighted("\n".join(lines), "diff"), cut))
    return found


def files(row: Implementation) -> Sequence[ArtifactFile]:
    """What the artifact holds: a library call nothing, a compiled kernel its shared library."""
    named = row.artifact.manifest.get("files", {})
    return [
        ArtifactFile(
            name, sha256, _size(sha256), read_library(file_path(sha256)) if name.endswith(".so") else None
        )
        for name, sha256 in sorted(named.items())
    ]


def _size(sha256: str) -> int | None:
    try:
        return file_path(sha256).stat().st_size
    except OSError:
        return None
