"""What a user can say: ``torch.compile(model, backend="opatlas", options={"wait_s": 5.0})``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from opatlas.client.client import Client
from opatlas.dynamo.report import TorchReport
from opatlas.errors import CallerError

FRAMEWORKS = ("eager", "inductor")


@dataclass(frozen=True)
class BackendOptions:
    """``wait_s``: for what is not known yet, at each lookup. ``offline``: never ask. ``freeze``: pack weights
    once, and again where they were seen to change (docs/pytorch.md says what is seen). ``plan``: ask the
    service which calls to run as one operator. ``try_s``: for timing, once for a graph on a machine.
    ``limit_s``: for each first run, compiling included, after which who takes it is left out.
    ``frameworks``: which of PyTorch's own take part. ``client``: who asks; ``report``: what is told of these
    graphs alone."""

    wait_s: float = 0.0
    offline: bool = False
    freeze: bool = False
    plan: bool = False
    try_s: float = 5.0
    limit_s: float = 300.0
    frameworks: tuple[str, ...] = FRAMEWORKS
    client: Client | None = None
    report: TorchReport | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> BackendOptions:
        """Raises :class:`opatlas.errors.CallerError` with what would be right."""
        known = [one.name for one in fields(cls)]
        given = dict(given or {})
        if unknown := [name for name in given if name not in known]:
            raise CallerError(f"There is no option {str(unknown[0])!r}; there are {', '.join(known)}.")
        for name in ("wait_s", "try_s", "limit_s"):
            value = given.get(name, 0.0)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 3600:
                raise CallerError(f"The option '{name}' is a number of seconds from 0 to 3600.")
        for name in ("offline", "freeze", "plan"):
            if not isinstance(given.get(name, False), bool):
                raise CallerError(f"The option '{name}' is True or False.")
        if "frameworks" in given:
            given["frameworks"] = frameworks = tuple(given["frameworks"])
            if not frameworks or not set(frameworks) <= set(FRAMEWORKS):
                raise CallerError(f"The option 'frameworks' names some of {', '.join(FRAMEWORKS)}.")
        for name, kind in (("client", Client), ("report", TorchReport)):
            if not isinstance(given.get(name), kind | None):
                raise CallerError(f"The option '{name}' is a {kind.__name__}.")
        return cls(**given)
