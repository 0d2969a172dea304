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
    """The page. It leaves out how figures are counted: the service shows that."""
    parts = [
        "# What does each figure mean?\n\n"
        "Pages and REST show the same figures. This page says what each one means. How each is counted, and "
        "from which tables, stands beside it on the service's page `/definitions/` and in "
        "`GET /api/v1/statistics/definitions`. [catalog/figures](../catalog/figures) has the text.\n\n"
        "One selector computes each figure. `tests/figures` recounts it from the raw rows. "
        "`manage.py describe_figures > docs/figures.md` writes this page.\n"
    ]
    for title, figures in GROUPS:
        if figures:
            parts.append(f"\n## {title}\n\n| figure | name in REST | unit | meaning |\n")
            parts.append("| --- | --- | --- | --- |\n")
            parts += [_line(figure) for figure in figures]
    return "".join(parts)


def _line(figure: Figure) -> str:
    cells = (figure.title, f"`{figure.name}`", figure.unit, figure.meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
