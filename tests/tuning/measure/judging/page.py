"""docs/accuracy.md, of which several programs write a section each: from its heading to the next one."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[4] / "docs"
PAGE = DOCS / "accuracy.md"


def written(heading: str) -> str:
    """A section as it stands; empty where the page does not have it."""
    _, found, rest = PAGE.read_text().partition(f"{heading}\n")
    return found + rest.partition("\n## ")[0].rstrip("\n") + "\n" if found else ""


def write(section: str) -> None:
    """In place of the section with the same heading, or at the end."""
    page = PAGE.read_text()
    before = written(section.partition("\n")[0])
    PAGE.write_text(page.replace(before, section) if before else f"{page.rstrip()}\n\n{section}")
