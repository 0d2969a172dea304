"""One operator's tables: what its page shows and exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.charging import Terms
from catalog.default_names import default_route_name
from catalog.models import Operator
from catalog.selectors.detail import Place, PlacedBest, RankedImplementation
from catalog.selectors.predicted import RelatedOperator
from catalog.selectors.reuse import OperatorReuse
from catalog.selectors.traffic import LookupSlot
from catalog.viewing import Viewer
from dashboard.pages.operators import cells
from dashboard.pages.operators.cells import MadeRow
from dashboard.pages.operators.history import TimelineEntry
from dashboard.pages.operators.race import RaceCard, RaceRow
from dashboard.templatetags.tables import speedup
from dashboard.web.charts.methods import Point
from dashboard.web.tables import Column, Table, default_time, exports, of_neighbours, page
from tuning.models import TuningSlice
from tuning.rechecks.selectors import ReportedRow
from tuning.statistics.comparing import Comparison, share
from tuning.statistics.sides import SideBySide

_M = "made.measurement"
_I = "made.implementation"
# What compares is the ratio. A time is its race's, and says beside it what the default took there.
_EVIDENCE = (
    Column(
        "ratio_to_default",
        "Over the default",
        "speedup",
        f"{_M}.ratio_to_default",
        "operator_speedup",
        beside=f"{_M}.ratio",
    ),
    *exports("ratio_low", "ratio_high", of=_M),
    Column("median_us", "As its race saw it", "us", f"{_M}.median_us", css="muted", room_px=104),
    Column("spread_us", "Spread", "us", f"{_M}.spread_us", under="median_us", say="± {}"),
    *default_time(_M),
)


_SIDES = (
    *exports("method"),
    *exports("route", "label", of=_I),
    *exports("median_us", "spread_us", "default_us", "default_route", of=_M),
    *exports("ratio_to_default", "ratio_low", "ratio_high", of=_M),
    *exports("samples", of="made"),
    *exports(verdict=lambda side: side.sentence or "The fastest known."),
)


def sides(of: SideBySide) -> Table:
    """Library, compiler and manual: the best of each, to export. The page says in words how they compare."""
    return Table("methods", "The best of each method", _SIDES, of.sides)


def targets(found: Sequence[PlacedBest], shown: Place | None) -> Table:
    """The best of every place: CPUs and GPUs beside each other."""

    def where(row: PlacedBest) -> str:
        return f"?at={row.place.value}"

    def setting(row: PlacedBest) -> str:
        return row.place.setting.on(row.place.target)

    columns = (
        Column("target", "Target", value="place.target.title", link=where, css="wide-text lead"),
        Column("setting", "Setting", value=setting, under="target"),
        Column("route", "Its best", "method", "best.route", beside="best.method"),
        Column("label", "Variant", value="best.label", under="route", css="clip"),
        Column("median_us", "Time", "us", "best.median_us", "operator_time"),
        Column("spread_us", "Spread", "us", "best.spread_us", under="median_us", say="± {}"),
        Column("times_the_fastest", "Of the fastest target's", "ratio", figure="times_the_fastest"),
        Column("default_us", "Default there", "us", "best.default_us", "default_time", room_px=220),
        Column(
            "default_route", show=_default_there, value="best.measurement.default_route", under="default_us"
        ),
        Column(
            "ratio_to_default",
            "Over the default",
            "speedup",
            "best.ratio_to_default",
            "operator_speedup",
            beside="best.ratio",
        ),
        *exports("ratio_low", "ratio_high", of="best"),
        *exports(key="place.target.key", setting_key="place.setting.key"),
    )
    return Table(
        "targets",
        "Targets side by side",
        columns,
        found,
        css="stacks",
        row_css=lambda row: "chosen" if row.place == shown else "",
    )


def _default_there(row: PlacedBest) -> str:
    return default_route_name(row.best.measurement.default_route)


def _rank(row: MadeRow) -> int | None:
    return None if row.made.rank is None else row.made.rank + 1


def _environment(row: MadeRow) -> str:
    return str(row.made.implementation.environment)


def _verdict(row: MadeRow) -> str:
    if row.made.equal:
        return "equal"
    return row.against.verdict if row.against else "best" if row.made.rank == 0 else ""


def _confidence(row: MadeRow) -> str:
    return share(row.against.confidence) if row.against else ""


def _tier(row: MadeRow) -> str:
    return row.made.measurement.tier if row.made.measurement else ""


_IMPLEMENTATIONS = (
    Column("rank", "Rank", value=_rank, show=cells.rank, css="nowrap", label="", room_px=80),
    Column("route", "Route and versions", "method", f"{_I}.route", beside=f"{_I}.method", room_px=190),
    Column(
        "label", "Variant", value=f"{_I}.label", show=cells.variant, css="variant lead", room_px=160,
    ),
    Column("environment", "Versions", value=_environment, under="route", css="clip"),
    *_EVIDENCE,
    *exports("samples", of="made"),
    Column(
        "against_best", "Against the best", "ratio", "against.factor", "comparison",
        show=cells.against, css="nowrap", room_px=97,
    ),
    *exports(against_low="against.low", against_high="against.high"),
    *exports(verdict=_verdict, confidence=_confidence),
    Column("max_error", "Error", "scientific", f"{_M}.max_error", css="spare"),
    Column("tolerance", "Tolerance", "scientific", f"{_M}.tolerance", under="max_error", say="of {}"),
    *exports("prepare_us", "prepare_bytes", of=_M),
    Column(
        "artifact", "Artifact", value=f"{_I}.artifact.sha256", show=cells.artifact, css="nowrap spare",
        room_px=96,
    ),
    *exports("kind", of=f"{_I}.artifact"),
    *exports(tier=_tier),
    Column("build_s", "Build", "seconds", f"{_I}.build_s", under="measured_at", say="built in {}"),
    Column(
        "measured_at", "Measured", "when", f"{_M}.created_at", css="number muted spare nowrap", room_px=104,
    ),
    *exports(price=lambda row: row.terms.sentence if row.terms else "", implementation=f"{_I}.pk"),
    Column("code", "Code", "actions", show=cells.code, only="page", css="end"),
)  # fmt: skip


def implementations(
    operator: Operator,
    viewer: Viewer,
    made: Sequence[RankedImplementation],
    against: Mapping[int, Comparison],
    terms: Mapping[int, Terms],
    chosen: RankedImplementation | None,
    of: SideBySide,
) -> Table:
    leading = {side.made.implementation.pk for side in of.sides}
    keys = [one.implementation.pk for one in made]
    rows = [
        MadeRow(
            one, against.get(pk), terms.get(pk), operator.key, viewer.may_bill, one is chosen, pk in leading
        )
        for one, pk in zip(made, keys, strict=True)
    ]
    return Table(
        "implementations",
        "Implementations",
        _IMPLEMENTATIONS,
        rows,
        css="stacks implementations",
        row_css=lambda row: "best" if row.made.rank == 0 else "chosen" if row.chosen else "",
        row_id=lambda row: f"i{row.made.implementation.pk}",
    )


def _in_final(row: RaceRow) -> str:
    final = row.entry.final
    return speedup(final["ratio"], final["low"], final["high"]) if final else ""


_E = "entry"
_RACE = (
    Column("heat", "Heat", value=lambda row: row.entry.heat or None),
    Column("route", "Candidate", "method", f"{_E}.route"),
    Column("label", "Variant", value=f"{_E}.label", under="route", css="clip"),
    *exports("method"),
    Column("rounds", "Rounds", "count", f"{_E}.rounds", show=lambda row: row.entry.rounds or "", spare=True),
    Column("chance", "To win", "percent", f"{_E}.chance", spare=True),
    Column("heat_ratio", "In its heat", "ratio", f"{_E}.ratio", spare=True),
    Column(
        "ratio", "In the final", "speedup", f"{_E}.final.ratio", "operator_speedup", show=_in_final,
        spare=True,
    ),
    Column("ratio_low", value=f"{_E}.final.low", only="export"),
    Column("ratio_high", value=f"{_E}.final.high", only="export"),
    Column("median_us", "Time in this race", "us", f"{_E}.final.median_us", spare=True),
    *exports("default_us", of="race"),
    Column("ended", "What came of it", value=f"{_E}.ended", css="wide-text lead"),
    *exports("status", "dropped", "skipped", "held", "equal", "won", of=_E),
    *exports(race="race.id", stage="race.stage_name", ran_at="race.created_at"),
)  # fmt: skip


def race(card: RaceCard | None) -> Table:
    """The candidates of one race: their times compare, since they are of the same race."""
    return Table(
        "race", "The race", _RACE, card.rows if card else (), "No race was held yet.", css="stacks",
        row_css=lambda row: "best" if row.entry.won else "",
    )  # fmt: skip


_LEADERS = (
    Column("at", "Since", "when"),
    Column("name", "Who led", "method", room_px=242),
    Column("ratio", "Over the default", "ratio", figure="operator_speedup"),
    Column("low", "from", "ratio", under="ratio", say="from {}"),
    Column("high", "to", "ratio", under="ratio", say="to {}"),
    Column("reason", "Why", css="wrap-wide", room_px=300),
)


_REPORTED = (
    Column("route", "Implementation", "method", "implementation.route", beside="implementation.method"),
    Column("label", "Variant", value="implementation.label", under="route", css="clip"),
    Column("state", "Proved again", "badge"),
    Column("asked_at", "Reported", "when", "recheck.asked_at", css="number muted"),
    Column("finished_at", "Ended", "when", "recheck.finished_at", css="number muted", spare=True),
    Column("detail", "What came of it", css="wide-text lead"),
    Column("reports", "Your reports", "count", spare=True),
    Column("said", "Your latest error", spare=True, css="wide-text"),
)


def failures(rows: Sequence[ReportedRow]) -> Table:
    return Table("failures", "Reported as failing", _REPORTED, rows, "Nobody reported any.")


def leaders(points: Sequence[Point]) -> Table:
    return Table("best", "The best over time", _LEADERS, points[::-1], "No best yet.", css="stacks")


def events(found: Sequence[TimelineEntry]) -> Table:
    columns = exports("at", "kind", "method", "route", "title", "detail", "environment")
    return Table("history", "What happened to the best", columns, found)


_JOBS = (
    Column("job", "Job", value="job.name"),
    Column("hits", "Hits", "count"),
    of_neighbours("hits"),
    Column("misses", "Misses", "count"),
    Column("last_at", "Last asked", "when"),
)


def jobs(reuse: OperatorReuse) -> Table:
    return Table("jobs", "Jobs", _JOBS, reuse.jobs, "No job has used it yet.")


_MODELS = (
    Column("model", "Model", value="model.name", link=page("model", "model_id")),
    Column("example", "As"),
    Column("calls", "Calls of a run", "count"),
)


def models(reuse: OperatorReuse) -> Table:
    return Table("models", "Models", _MODELS, reuse.models, "No model has it.")


_RELATED = (
    Column("summary", "Operator", link=page("operator", "key"), css="wide-text lead"),
    Column("jobs", "In jobs", "count", figure="related_jobs"),
    *exports("key", "op_type", "last_at"),
)


def related(found: Sequence[RelatedOperator]) -> Table:
    return Table("related", "Related to", _RELATED, found, "No job asked for another one after it yet.")


_LOOKUPS = (
    Column("start", "From", "when"),
    Column("hits", "Hits", "count"),
    Column("misses", "Misses", "count"),
    Column("hit_rate", "Hit rate", "percent", figure="hit_rate"),
)


def lookups(slots: Sequence[LookupSlot]) -> Table:
    every = slots[::-1]
    return Table(
        "lookups", "Lookups", _LOOKUPS, [one for one in every if one.hit_rate is not None], every=every
    )


_SLICES = (
    Column("at", "When", "when", "created_at"),
    Column("route", "Route"),
    Column("expected", "Expected", "percent", "expected_gain"),
    Column("gained", "Gained", "percent"),
    Column("seconds", "Took", "seconds"),
    *exports("before_us", "after_us"),  # as its race saw them
)


def slices(rows: Sequence[TuningSlice]) -> Table:
    return Table("slices", "Slices of tuning", _SLICES, rows, "It was not tuned yet.")
