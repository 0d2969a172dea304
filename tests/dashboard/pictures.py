"""Pictures of pages for the documentation: 1280 px wide, light and dark, small enough to commit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from tests.dashboard.serving import until

WIDTH, HEIGHT = 1280, 900
MOST_HEIGHT = 1500
"""Longer pages are cut there: what follows is more rows of the same."""

MOST_BYTES = 60_000
_QUALITIES = (88, 80, 70, 60, 50, 40, 30, 20)


def shoot_docs(page: Any, url: str, paths: dict[str, str], folder: Path, only: set[str]) -> None:
    """``NAME-light.webp`` and ``NAME-dark.webp`` of every page; prints what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        for name, path in paths.items():
            if only and name not in only:
                continue
            page.goto(url + path)
            page.wait_for_timeout(300)
            until(page, "!document.querySelector('.chart.waiting')")
            height = min(int(page.evaluate("document.documentElement.scrollHeight")), MOST_HEIGHT)
            # In a window as high as that: what stays in sight at its foot stands at the picture's.
            page.set_viewport_size({"width": WIDTH, "height": max(height, 400)})
            page.wait_for_timeout(100)
            shot = page.screenshot(caret="initial")  # to hide it takes a style, which no policy allows
            page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
            data = smallest(shot)
            target = folder / f"{name}-{theme}.webp"
            target.write_bytes(data)
            print(f"{target}: {len(data) >> 10} KiB")


def smallest(png: bytes) -> bytes:
    """A PNG as WebP of at most 60 kB, in the best quality that fits; text stays sharp down to 40 or so."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    data = b""
    for scale in (1.0, 0.8, 0.65):
        sized = image
        if scale < 1:
            sized = image.resize((round(image.width * scale), round(image.height * scale)), Image.LANCZOS)
        for quality in _QUALITIES[: 6 if scale > 0.7 else None]:
            out = io.BytesIO()
            sized.save(out, "WEBP", quality=quality, method=6)
            data = out.getvalue()
            if len(data) <= MOST_BYTES:
                return data
    return data
