"""Walking a tale: its panels in their order, and a picture of each where pictures are asked for."""

from __future__ import annotations

import html
import os
from typing import Any

from tests.dashboard.pictures import smallest
from tests.dashboard.serving import until
from tests.dashboard.stories.tales import PICTURES, Tale

ASKED = "OPATLAS_STORIES"
"""The environment variable that asks for pictures."""

SIZE = {"width": 1100, "height": 720}
_TERMINAL = """<!doctype html><style>
body {{ margin: 0; background: #14181f; color: #dfe5ee; font: 14px/1.5 "DejaVu Sans Mono", monospace; }}
pre {{ margin: 0; padding: 24px; white-space: pre-wrap; overflow-wrap: anywhere; }} b {{ color: #8fd3a5; }}
</style><pre>{lines}</pre>"""


class StoryTeller:
    """``page`` walks ``tale``. At the end :meth:`over` says whether every panel was shown."""

    def __init__(self, tale: Tale, page: Any) -> None:
        self.tale, self.page = tale, page
        self._left = list(tale.panels)
        page.set_viewport_size(SIZE)
        page.emulate_media(color_scheme=tale.theme, reduced_motion="reduce")

    def show(self, name: str, at: str = "") -> None:
        """The panel of this name, which must be the next one. ``at``: the part of the page that the picture
        is about, brought into sight."""
        if at:
            self.page.locator(at).first.evaluate("one => one.scrollIntoView({block: 'center'})")
        self._picture(name, self.page)

    def terminal(self, name: str, *lines: str) -> None:
        """A panel of what was typed, behind a ``$ `` or ``>>> ``, and what that printed."""
        beside = self.page.context.new_page()
        beside.set_viewport_size(SIZE)
        beside.set_content(_TERMINAL.format(lines="\n".join(map(_marked, lines))))
        self._picture(name, beside, height=beside.evaluate("document.querySelector('pre').offsetHeight"))
        beside.close()

    def said(self) -> str:
        """What the page says, in one line."""
        return " ".join(self.page.locator("main").inner_text().split())

    def over(self) -> None:
        assert not self._left, f"never shown: {[panel.name for panel in self._left]}"

    def _picture(self, name: str, page: Any, height: int = SIZE["height"]) -> None:
        panel = self._left.pop(0)
        assert panel.name == name, f"{name!r} comes where {panel.name!r} is told"
        if not os.environ.get(ASKED):
            return
        until(page, "!document.querySelector('.chart.waiting')")
        PICTURES.mkdir(exist_ok=True)
        clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": min(height, SIZE["height"])}
        # To hide a caret a style would be put into the page, which its policy forbids.
        self.tale.picture(panel).write_bytes(smallest(page.screenshot(clip=clip, caret="initial")))


def _marked(line: str) -> str:
    return f"<b>{html.escape(line)}</b>" if line.startswith(("$ ", ">>> ")) else html.escape(line)
