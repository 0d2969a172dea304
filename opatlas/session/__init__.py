"""Models that run as in ``onnxruntime.InferenceSession``, by what is fastest here: :class:`Session`. Names
are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opatlas.lazy import names_of

if TYPE_CHECKING:
    from opatlas.session.comparing import compared, onnxruntime_session
    from opatlas.session.kept_choice import tried_frameworks
    from opatlas.session.reporting import StepShare
    from opatlas.session.session import Session

__getattr__ = names_of(
    __name__,
    {
        "comparing": ("compared", "onnxruntime_session"),
        "kept_choice": ("tried_frameworks",),
        "reporting": ("StepShare",),
        "session": ("Session",),
    },
)

__all__ = ["Session", "StepShare", "compared", "onnxruntime_session", "tried_frameworks"]
