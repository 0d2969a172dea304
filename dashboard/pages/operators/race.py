"""An operator's race on its page: the final, the heats, and the candidates that were not tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from django.db.models import QuerySet

from dashboard.web.asked import say_unknown
from dashboard.web.charts.race import RatioAxis, RoundAxis, Whisker
from dashboard.web.requests import ViewerRequest, number_in
from tuning.explore.race.report import Entry
from tuning.models import Exploration, Race
from tuning.routes.registry import ROUTES
from tuning.statistics import races
from tuning.statistics.races import RaceTold

_METHODS = {route.name: route.method for route in ROUTES}
SKIPPED_SHOWN = 4
"""Further untried ones are folded."""


@dataclass(frozen=True)
class RaceRow:
    """One candidate, with its method and where it is drawn."""

    entry: Entry
    method: str
    race: RaceTold
    ran: float  # rounds of its heat, in per cent of the axis
    whisker: Whisker | None

    @property
    def css(self) -> str:
        one = self.entry
        words = {"won": one.won, "equal": one.equal and not one.won, "dropped": one.dropped}
        return " ".join(word for word, holds in words.items() if holds)


@dataclass(frozen=True)
class RaceHeat:
    """One heat: who ran longest comes first."""

    number: int
    rows: Sequence[RaceRow]


@dataclass(frozen=True)
class RaceCard:
    """The race that the address asks for, and the others there are (without their reports)."""

    told: RaceTold
    others: Sequence[Race]
    ratios: RatioAxis = field(init=False)
    rounds: RoundAxis = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratios", RatioAxis(self.told.entries))
        object.__setattr__(self, "rounds", RoundAxis(self.told.entries))

    @cached_property
    def rows(self) -> list[RaceRow]:
        return [
            RaceRow(
                one,
                _METHODS.get(one.route, "library"),
                self.told,
                self.rounds.at(one.rounds),
                self.ratios.whisker(one),
            )
            for one in sorted(self.told.entries, key=_in_order)
        ]

    @property
    def final(self) -> list[RaceRow]:
        return [row for row in self.rows if row.whisker]

    @property
    def heats(self) -> list[RaceHeat]:
        found: dict[int, list[RaceRow]] = {}
        for row in self.rows:
            if row.entry.heat:
                found.setdefault(row.entry.heat, []).append(row)
        lasting = {number: sorted(rows, key=_lasting) for number, rows in found.items()}
        return [RaceHeat(number, rows) for number, rows in sorted(lasting.items())]

    @property
    def apart(self) -> list[RaceRow]:
        """Who came to no heat: not tried for small odds, or not built."""
        return [row for row in self.rows if not row.entry.heat and row.whisker is None]

    @property
    def folded(self) -> bool:
        return len(self.apart) > SKIPPED_SHOWN


def card(request: ViewerRequest, explorations: QuerySet[Exploration]) -> RaceCard | None:
    """The race that the address asks for, else the latest of these explorations; None where there is none."""
    others = list(races.latest(explorations).defer("report"))
    if not others:
        return None
    asked = number_in(request.GET.get("race", ""))
    chosen = next((one for one in others if one.pk == asked), None)
    if chosen is None:
        say_unknown(request, "race", " of this operator here")
    return RaceCard(races.told(chosen or others[0]), others)


def _in_order(entry: Entry) -> tuple[bool, bool, float, bool, int, float]:
    """The final by ratio, its winner first; then heat by heat."""
    final = entry.final or {}
    no_final, skipped = not final, bool(entry.skipped)
    return no_final, not entry.won, -final.get("ratio", 0.0), skipped, entry.heat, -(entry.ratio or 0.0)


def _lasting(row: RaceRow) -> tuple[int, float]:
    return -row.entry.rounds, -(row.entry.ratio or 0.0)
