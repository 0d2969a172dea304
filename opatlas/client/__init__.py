"""How a job talks to the service: :class:`Client` answers from its caches and asks for the rest;
:class:`RestClient` makes the REST calls alone. Names come when they are first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opatlas.lazy import names_of

if TYPE_CHECKING:
    from opatlas.client.answer import Answer
    from opatlas.client.client import Client, Handle
    from opatlas.client.exporting import export_snapshot
    from opatlas.client.fetching import Refused, Trust, fetch_and_load
    from opatlas.client.function import KernelFunction
    from opatlas.client.related import Predictor, RestOfModel
    from opatlas.client.rest import RestClient, ServiceError
    from opatlas.client.snapshot import Snapshot

__getattr__ = names_of(
    __name__,
    {
        "answer": ("Answer",),
        "client": ("Client", "Handle"),
        "exporting": ("export_snapshot",),
        "fetching": ("Refused", "Trust", "fetch_and_load"),
        "function": ("KernelFunction",),
        "related": ("Predictor", "RestOfModel"),
        "rest": ("RestClient", "ServiceError"),
        "snapshot": ("Snapshot",),
    },
)

__all__ = [
    "Answer",
    "Client",
    "Handle",
    "KernelFunction",
    "Predictor",
    "Refused",
    "RestClient",
    "RestOfModel",
    "ServiceError",
    "Snapshot",
    "Trust",
    "export_snapshot",
    "fetch_and_load",
]
