"""A contest's race as a report for people: the order of tries, who was dropped when, with what chance, and
the final's decision. PURE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from catalog.default_names import default_name
from opatlas.evidence import Evidence

_FINE = ("", "ok", "slower")


@dataclass
class Entry:
    """One candidate. Ratios are default ÷ candidate, from the heat or the final."""

    route: str
    label: str
    heat: Annotated[int, "Of how many-th it was part; 0: of none."] = 0
    status: str = ""
    rounds: Annotated[int, "That it ran in its heat."] = 0
    chance: Annotated[
        float | None, "To be faster than the heat's leader, when it was dropped or the heat ended."
    ] = None
    dropped: Annotated[bool, "Out of its heat for its small chance."] = False
    skipped: Annotated[str, "Why it was not tried at all."] = ""
    ratio: Annotated[float | None, "Of the heat."] = None
    final: Annotated[
        Mapping[str, float] | None, "Of the final, where it ran there: median_us, ratio, low, high."
    ] = None
    held: Annotated[bool, "It held a seat in the catalogue before."] = False
    equal: Annotated[bool, "Not told apart from the winner."] = False
    won: Annotated[bool, "It is served since."] = False

    @property
    def name(self) -> str:
        return f"{self.route} · {self.label}" if self.label else self.route

    def ran_in_final(self, status: str, timing: Evidence | None, *, won: bool, equal: bool) -> None:
        """Add the final's result."""
        self.status, self.won, self.equal = status, won, equal
        if timing is not None:
            figures = {"median_us": timing.median_us, "ratio": timing.ratio_to_default}
            figures |= {"low": timing.ratio_low, "high": timing.ratio_high}
            self.final = {name: round(figure, 4) for name, figure in figures.items()}

    @property
    def ended(self) -> str:
        """Its result in words."""
        if self.skipped:
            return f"not tried: {self.skipped}"
        if self.status not in _FINE:
            return self.status.replace("_", " ")
        if self.final is not None:
            return "won" if self.won else "equal to the winner" if self.equal else "slower in the final"
        return self._ended_in_heat()

    def _ended_in_heat(self) -> str:
        if not self.heat:
            return "was not timed"
        if self.status == "slower":
            return "far slower than the default"
        if self.chance is None:
            return f"ran {_rounds(self.rounds)}, in no final"
        if self.dropped:
            return f"dropped after {_rounds(self.rounds)}: {chance_text(self.chance)} to win"
        # Only of itself the leader is never behind.
        said = "led its heat" if self.chance >= 1 else f"{chance_text(self.chance)} to win"
        return f"ran all {_rounds(self.rounds)}: {said}, in no final"


@dataclass
class RaceReport:
    """Of one slice. ``seconds``: of heats and the final, without the builds."""

    entries: list[Entry] = field(default_factory=list)
    heats: int = 0
    sittings: int = 0
    seconds: float = 0.0
    default_us: float | None = None
    default_route: str = ""  # whose time that is; empty: written down before that was noted
    decides: bool = True  # False: one sitting, since others of the contest still wait for their turn

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RaceReport:
        entries = [Entry(**entry) for entry in document.get("entries", ())]
        return cls(**{**document, "entries": entries})


def decided_text(report: RaceReport) -> str:
    """The last round's decision in words."""
    finalists = [one for one in report.entries if one.final is not None]
    winner = next((one for one in finalists if one.won), None)
    if not finalists:
        return "No final: nobody came near who is served."
    if winner is None or winner.final is None:
        return "The final decided for nobody."
    figures = winner.final
    won = "won" if report.decides else "is served for now, after one sitting"
    said = f"{winner.name} {won}: {_times(figures['ratio'])} the {default_name(report.default_route)}"
    said += f" ({_times(figures['low'])} – {_times(figures['high'])})."
    equal = [one.name for one in finalists if one.equal and not one.won]
    if not equal:
        return said
    are = "is" if len(equal) == 1 else "are"
    said += f" {_listed(equal)} {are} equal to it: the final could not tell them apart"
    return f"{said}, so who was served stays." if winner.held else f"{said}."


def chance_text(chance: float) -> str:
    """``0.3 %``; never a false 0 or 100."""
    per_cent = 100 * chance
    if per_cent < 0.1:
        return "less than 0.1 %"
    return f"{per_cent:.1f} %" if per_cent < 1 else f"{min(per_cent, 99):.0f} %"


def _rounds(count: int) -> str:
    return f"{count} round" if count == 1 else f"{count} rounds"


def _times(ratio: float) -> str:
    return f"{ratio:.3g}×" if ratio >= 10 else f"{ratio:.2f}×"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
