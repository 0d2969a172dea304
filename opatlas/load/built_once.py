"""Our own C sources, built into libraries once per machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from opatlas.conf import conf
from opatlas.errors import LoadError
from opatlas.load.files import SharedLibrary
from opatlas.load.toolchain import compile_shared
from opatlas.own_folder import is_own, own_folder, read_own


@dataclass(frozen=True)
class OwnSources:
    """One C source and the headers that it includes; ``said``: its label."""

    said: str
    source: Path
    headers: tuple[Path, ...]

    def ensure_built(self) -> Path:
        """Path of the library. One that ships beside the source is taken, else the cache's, else it is
        compiled into the cache (about 0.3 s). The name holds the sources' hash, so an old one is never
        used."""
        content = b"".join(path.read_bytes() for path in (self.source, *self.headers))
        name = f"opatlas_{self.source.stem}-{hashlib.sha256(content).hexdigest()[:16]}.so"
        built = conf().cache / name
        for found in (self.source.parent / name, built):
            if is_own(found):
                return found
        try:
            own_folder(built.parent)
            compile_shared([self.source], built)
        except OSError as error:
            raise LoadError(
                f"{self.said} cannot be built in {built.parent}: {error.strerror or error}; "
                "set OPATLAS_CACHE to a folder that can be written"
            ) from error
        return built

    def load(self) -> SharedLibrary:
        """Load the library from a place that nobody else can write to."""
        path = self.ensure_built()
        try:
            content = read_own(path)
        except OSError as error:
            raise LoadError(f"the library of {self.said} is not loaded: {error}") from error
        return SharedLibrary(content, path.name)
