"""How a job talks to the service: :class:`Client` answers from its caches and asks for the rest;
:class:`RestClient` makes the REST calls alone. Names come when they are first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opatlas.client.answer import Answer
    from opatlas.client.client import Client, Handle
    from opatlas.client.exporting import export_snapshot
    from opatlas.client.fetching import Refused, Trust, fetch_and_load
    from opatlas.client.function import KernelFunction
    from opatlas.client.related import Predictor, RestOfModel
    from opatlas.client.rest import RestClient, ServiceError
    from opatlas.client.snapshot import Snapshot

_HOMES = {
    "answer": ("Answer",),
    "client": ("Client", "Handle"),
    "exporting": ("export_snapshot",),
    "fetching": ("Refused", "Trust", "fetch_and_load"),
    "function": ("KernelFunction",),
    "related": ("Predictor", "RestOfModel"),
    "rest": ("RestClient", "ServiceError"),
    "snapshot": ("Snapshot",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
