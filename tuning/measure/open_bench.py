"""Opening a bench: one operator, ready to be raced on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from opatlas.errors import OpatlasError
from opatlas.identity import Setting
from tuning.measure.bench import Bench, Equipment, Limits, LiveBench
from tuning.measure.heat import heat
from tuning.measure.lineup import line_up
from tuning.measure.outcome import Outcome, Status
from tuning.measure.specimen import Specimen
from tuning.routes.base import BuiltArtifact


class RacingBench(LiveBench):
    """A live bench on which many run in one race."""

    heat = heat
    line_up = line_up


@contextmanager
def open_bench(
    equipment: Equipment,
    make_specimen: Callable[[], Specimen],
    setting: Setting,
    default: BuiltArtifact,
    limits: Limits,
) -> Iterator[Bench]:
    """A bench, or one that says why there is none."""
    try:
        specimen = make_specimen()
    except OpatlasError as error:
        yield Bench(Outcome(Status.UNSUPPORTED, str(error)))
        return
    except (MemoryError, OSError) as error:
        yield Bench(Outcome(Status.OUT_OF_MEMORY, f"its inputs do not fit: {error}"))
        return
    with closing(specimen):
        bench = RacingBench(equipment, specimen, setting, default, limits)
        try:
            yield bench
        finally:
            bench.settle_doubts()
            bench.drop_default()
