"""Code blocks, commands and names out of README.md, deploy/README.md and docs/*.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.databases import ROOT

PAGES = [ROOT / "README.md", ROOT / "deploy/README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:make|manage\.py|python|granian|celery|pip|docker|\.ci/run|\.venv/\S+)\b.*"
)


@dataclass(frozen=True)
class Block:
    """A fenced block: which page it is on, and its text."""

    page: str
    language: str
    text: str

    @property
    def name(self) -> tuple[str, str]:
        """How tests name it: its page, and how its first line begins."""
        return self.page, self.text.partition("\n")[0][:20].strip()


def blocks() -> list[Block]:
    return [
        Block(str(path.relative_to(ROOT)), *match.groups())
        for path in PAGES
        for match in _FENCE.finditer(path.read_text())
        if match[1] != "mermaid"  # a diagram
    ]


def job_installation() -> Block:
    """What the README says of a job's machine."""
    [block] = [block for block in blocks() if "pip install dist/" in block.text]
    return block


def spans(path: Path) -> list[str]:
    """What stands between backticks in running text."""
    return re.findall(r"`([^`\n]+)`", _FENCE.sub("", path.read_text()))


def commands() -> list[str]:
    """Commands in running text; a program alone is only named."""
    found = {span for path in PAGES for span in spans(path) if _COMMAND.fullmatch(span)}
    return sorted(found - {"make", ".venv/bin/python"})
