"""``make lint``: links between documents lead to files, and to headings, that exist.

An address is held to the heading's name on the site of ``make docs`` and on GitHub, where they differ in
what becomes of a dash between blanks; so a heading that is linked to has no such dash.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("opatlas", "catalog", "tuning", "dashboard", "bench", "tests", "deploy")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")


def documents() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *of_packages()]


def of_this_tree() -> list[Path]:
    """All but the changelog, which names what is gone."""
    return [page for page in documents() if page.name != "CHANGELOG.md"]


def of_packages() -> list[Path]:
    """Those beside code."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("README.md"))


@cache
def headings(page: Path) -> frozenset[str]:
    """What a link may name of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ +(.*?) *#*$", text, re.MULTILINE)
    return frozenset(name for title in titles if (name := on_the_site(title)) == on_github(title))


def on_the_site(title: str) -> str:
    """As Python-Markdown's ``toc`` names it."""
    plain = unicodedata.normalize("NFKD", _shown(title)).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def on_github(title: str) -> str:
    return re.sub(r"[^\w -]", "", _shown(title).strip().lower()).replace(" ", "-")


def _shown(title: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for target, heading in _LINK.findall(_CODE.sub("", page.read_text())):
        file = (page.parent / target) if target else page
        if not file.exists() or (heading and file.suffix == ".md" and heading not in headings(file)):
            wrong.append(f"{target}#{heading}" if heading else target)
    return wrong


def main() -> int:
    found = [f"{page.relative_to(ROOT)}: {link}" for page in documents() for link in broken(page)]
    for line in found:
        print(f"{line} leads nowhere")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
