"""Machine code read in a sandboxed child: the parent's side. Whatever a file does there is an answer."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuning.measure.code_listing import LINE_CHARACTERS, MOST_LINES
from tuning.measure.sandbox import wire
from tuning.measure.sandbox.foreign import plain
from tuning.measure.sandbox.process import Bounds, Child, ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.routes.base import BuiltArtifact

READ_S = 30.0
READ_BOUNDS = Bounds(memory_bytes=2 << 30, disk_bytes=256 << 20)
_ENDINGS = (".so", ".pt2", ".cubin")


class NotRead(Exception):
    """Why the child has no answer: one sentence."""


@dataclass(frozen=True)
class CodeListing:
    """An artifact's machine code as text, bounded: of ``lines`` in all the first. Where there is none,
    ``why_not`` says why."""

    text: str = ""
    lines: int = 0
    tool: str = ""
    why_not: str = ""


def list_code(zygote: Zygote, artifact: BuiltArtifact) -> CodeListing:
    """What a disassembler writes of it. Never raises for what the file does."""
    name = next((name for name in sorted(artifact.manifest.files) if name.endswith(_ENDINGS)), None)
    if name is None:
        return CodeListing(why_not="the artifact holds no file of machine code")
    try:
        found = read_in_child(zygote, "list_code", Path(artifact.folder) / name, READ_BOUNDS)
        if why_not := found.get("why_not"):
            return CodeListing(why_not=plain(str(why_not), 300))
        text = plain(str(found["text"]), MOST_LINES * LINE_CHARACTERS)
        return CodeListing(text, int(found["lines"]), plain(str(found["tool"]), 40))
    except (NotRead, KeyError, TypeError, ValueError) as error:
        return CodeListing(why_not=plain(str(error), 300) or "no reason given")


def read_in_child(zygote: Zygote, do: str, file: Path, bounds: Bounds) -> dict[str, Any]:
    """What a child of a zygote that has the tools finds in one file. Raises :class:`NotRead`."""
    reply = wire.memory_file("reply")
    child: Child | None = None
    try:
        child = zygote.spawn({"do": do, "library": file.name}, [reply], bounds, bring=[file])
        answer = child.ask(None, READ_S)
        if "error" in answer:
            raise NotRead(str(answer["error"]))
        child.close()
        return dict(wire.read_json(reply))
    except (ChildFailed, OSError, TypeError, ValueError) as error:
        raise NotRead(str(error)) from error
    finally:
        os.close(reply)
        if child is not None:
            zygote.forget(child)
