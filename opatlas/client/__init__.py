"""A job's access to the service: :class:`Client` answers from its caches and asks for the rest;
:class:`RestClient` only makes the REST calls. Names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opatlas.lazy import names_of

if TYPE_CHECKING:
    from opatlas.client.answer import Answer
    from opatlas.client.client import Client, Handle
    from opatlas.client.exporting import export_snapshot
    from opatlas.client.loading.fetching import Refused, Trust, fetch_and_load
    from opatlas.client.loading.function import KernelFunction
    from opatlas.client.predict.learnt import Learnt
    from opatlas.client.predict.related import AskedNext, Nothing, Predictor, RestOfModel, Together
    from opatlas.client.service.rest import RestClient, ServiceError
    from opatlas.client.snapshot import Snapshot

__getattr__ = names_of(
    __name__,
    {
        "answer": ("Answer",),
        "client": ("Client", "Handle"),
        "exporting": ("export_snapshot",),
        "loading.fetching": ("Refused", "Trust", "fetch_and_load"),
        "loading.function": ("KernelFunction",),
        "predict.learnt": ("Learnt",),
        "predict.related": ("AskedNext", "Nothing", "Predictor", "RestOfModel", "Together"),
        "service.rest": ("RestClient", "ServiceError"),
        "snapshot": ("Snapshot",),
    },
)

__all__ = [
    "Answer",
    "AskedNext",
    "Client",
    "Handle",
    "KernelFunction",
    "Learnt",
    "Nothing",
    "Predictor",
    "Refused",
    "RestClient",
    "RestOfModel",
    "ServiceError",
    "Snapshot",
    "Together",
    "Trust",
    "export_snapshot",
    "fetch_and_load",
]
