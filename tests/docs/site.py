"""``make docs``: what the site needs beside docs/, as hooks of mkdocs.

README.md is its first page. DESIGN.md, CHANGELOG.md and the packages' README.md are pages as well. Links
among all of these are rewritten, since they are written for the tree; a link to code becomes plain text.
``<!-- tables: figures/a.json figures/b.json -->`` becomes the tables of these files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from html import escape
from os.path import normpath, relpath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tests.docs.links import PACKAGES, ROOT, of_packages

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_TABLES = re.compile(r"<!-- tables: (.*?) -->")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for path in [ROOT / "README.md", ROOT / "DESIGN.md", ROOT / "CHANGELOG.md", *of_packages()]:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, address_of(name), content=path.read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return with_tables(linked(markdown, page.file.src_uri, {file.src_uri for file in files}))


def linked(markdown: str, here: str, addresses: Collection[str]) -> str:
    """A page with its links as the site needs them. ``here``: its address, one of ``addresses``."""

    def rewritten(match: re.Match[str]) -> str:
        picture, text, target, heading = match.groups()
        name = normpath(PurePosixPath(source_of(here)).parent / target)
        if (address := address_of(name)) in addresses:
            return f"{picture}[{text}]({relpath(address, PurePosixPath(here).parent)}{heading or ''})"
        return str(text) if (ROOT / name).exists() else match[0]  # mkdocs tells of what leads nowhere

    return _LINK.sub(rewritten, markdown)


def address_of(name: str) -> str:
    """Where a file of the tree lies on the site: docs/ is its root."""
    return "index.md" if name == "README.md" else name.removeprefix("docs/")


def source_of(address: str) -> str:
    """The other way round."""
    if address == "index.md":
        return "README.md"
    folders = tuple(f"{package}/" for package in PACKAGES)
    beside = address in ("DESIGN.md", "CHANGELOG.md") or address.startswith(folders)
    return address if beside else f"docs/{address}"


def with_tables(markdown: str) -> str:
    def drawn(match: re.Match[str]) -> str:
        files = [json.loads((ROOT / "docs" / name).read_text()) for name in match[1].split()]
        return "\n\n".join(table(one) for tables in files for one in tables)

    return _TABLES.sub(drawn, markdown)


def table(one: Mapping[str, Any]) -> str:
    """One table, closed until somebody opens it; numbers have a bar as long as they are large."""
    most = [
        max((row[at] for row in one["rows"] if isinstance(row[at], int | float)), default=0.0)
        for at in range(len(one["columns"]))
    ]
    head = "".join(f"<th>{escape(name)}</th>" for name in one["columns"])
    body = "".join(f"<tr>{''.join(_cells(row, most))}</tr>" for row in one["rows"])
    return (
        f"<details><summary>{escape(one['title'])}</summary><p>{escape(one['conditions'])}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )


def _cells(row: list[Any], most: list[float]) -> Iterator[str]:
    for cell, largest in zip(row, most, strict=True):
        if isinstance(cell, int | float):
            share = 100 * cell / largest if largest else 0
            bar = f"linear-gradient(90deg, #8884 {share:.1f}%, transparent 0)"
            yield f'<td style="background: {bar}">{cell:g}</td>'
        else:
            yield f"<td>{escape('' if cell is None else str(cell))}</td>"
