"""``manage.py describe_figures > docs/figures.md``: the page of definitions for the documentation."""

from __future__ import annotations

from typing import Any

from catalog.commands import QuickCommand
from catalog.figures import GROUPS, Figure


class Command(QuickCommand):
    help = "Write the definitions of all figures as Markdown."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(described(), ending="")


def described() -> str:
    """All definitions as Markdown."""
    parts = [
        "# What does each figure mean?\n\n"
        "Pages and the statistics API have the same figures. Each comes from one selector. `tests/figures` "
        "counts it once more from the raw rows. `manage.py describe_figures > docs/figures.md` writes this "
        "page.\n"
    ]
    for title, figures in GROUPS:
        if figures:
            parts.append(f"\n## {title}\n\n| figure | name | in | meaning | counted as | from |\n")
            parts.append("| --- | --- | --- | --- | --- | --- |\n")
            parts += [_line(figure) for figure in figures]
    return "".join(parts)


def _line(figure: Figure) -> str:
    cells = (figure.title, f"`{figure.name}`", figure.unit, figure.meaning, figure.formula, figure.source)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
