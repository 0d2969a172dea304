"""The fastest known implementation of every operator, for a job: :mod:`opatlas.client` looks operators up,
``opatlas.Session`` runs models."""

from typing import TYPE_CHECKING

from opatlas.lazy import names_of
from opatlas.session.recorded import note_options

if TYPE_CHECKING:
    from opatlas.dynamo.backend import optimize, torch_report
    from opatlas.plan.engines import Engines
    from opatlas.session import Session

__getattr__ = names_of(
    "opatlas",
    {
        "session": ("Session",),
        "plan.engines": ("Engines",),
        "dynamo.backend": ("optimize", "torch_report"),
    },
)

note_options()

__all__ = ["Engines", "Session", "optimize", "torch_report"]
