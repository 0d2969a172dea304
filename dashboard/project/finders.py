"""Plotly's browser bundle, served from the installed package: 4.8 MB that need no copy in the repository."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage, Storage

BUNDLE = "vendor/plotly.min.js"


def bundle_folder() -> Path:
    """Where the plotly distribution keeps its bundle; found without importing plotly."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("plotly is not installed: pip install -r requirements.txt")
    return Path(spec.submodule_search_locations[0]) / "package_data"


class PlotlyFinder(BaseFinder):
    """Finds ``vendor/plotly.min.js`` and nothing else of the package."""

    def check(self, **kwargs: Any) -> list:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """Django gives ``find_all`` by name; before 5.2 it was called ``all``."""
        every = find_all or kwargs.get("all", False)
        if path != BUNDLE:
            return []
        found = str(bundle_folder() / "plotly.min.js")
        return [found] if every else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        storage = FileSystemStorage(location=bundle_folder())
        storage.prefix = "vendor"  # type: ignore[attr-defined]  # what collectstatic puts in front
        yield "plotly.min.js", storage
