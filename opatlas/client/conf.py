"""What a job's client reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opatlas.conf import conf as everybodys
from opatlas.conf import process, variable


@dataclass(frozen=True, kw_only=True)
class ClientConf:
    url: str = variable("http://127.0.0.1:8000", "address", "of the service that a job's client asks")
    key: str = variable("", "text", "the API key that it asks with", shown="none", secret=True)
    cache_bytes: int = variable(
        256 << 20,
        "bytes",
        "that a client's entries may take on disk; the least used make room",
        least=1 << 20,
    )

    @property
    def cache(self) -> Path:
        """The folder that a user's processes share."""
        return everybodys().cache


def conf() -> ClientConf:
    return process(ClientConf)
