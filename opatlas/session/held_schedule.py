"""Which of a session's first runs are compared with ONNX Runtime. PURE."""

from __future__ import annotations

from dataclasses import dataclass

SHARE = 0.25
"""The most of the runs' time that comparisons may take, the first one and opening ONNX Runtime aside."""


@dataclass
class HeldSchedule:
    """The first run, the second, the fourth, the eighth, …, each once its time is within the share, until
    ``most`` were held. ``runs`` and ``held``: how many there were, with their seconds."""

    most: int
    runs: int = 0
    held: int = 0
    run_s: float = 0.0
    later_held_s: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.held >= self.most

    @property
    def is_due(self) -> bool:
        """Whether the next run is held."""
        return not self.is_over and self.runs + 1 >= 2**self.held and self.later_held_s <= SHARE * self.run_s

    def ran(self, seconds: float) -> None:
        """A run ended, which took so long."""
        self.runs += 1
        self.run_s += seconds

    def gave_up(self, seconds: float) -> None:
        """ONNX Runtime had so long for the same run, and did not end it."""
        self.later_held_s += seconds

    def was_held(self, seconds: float) -> None:
        """ONNX Runtime took so long for the same run."""
        if self.held:
            self.later_held_s += seconds
        self.held += 1
