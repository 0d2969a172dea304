"""The fastest known implementation of every operator, for a job: :mod:`opatlas.client` looks operators up,
``opatlas.Session`` runs models."""

from typing import TYPE_CHECKING

from opatlas.lazy import names_of

if TYPE_CHECKING:
    from opatlas.dynamo.backend import optimize, torch_report
    from opatlas.session import Session

__getattr__ = names_of("opatlas", {"session": ("Session",), "dynamo.backend": ("optimize", "torch_report")})

__all__ = ["Session", "optimize", "torch_report"]
