"""Opening a bench: one operator, ready to be raced on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opatlas.errors import OpatlasError
from opatlas.identity import Setting
from tuning.measure.bench import Bench, Equipment, Limits, LiveBench
from tuning.measure.heat import heat
from tuning.measure.kept import KeptSetUp
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
    """A bench, or one that says why there is none; set up anew, or as its last slice left it."""
    kept = equipment.kept.take(default.manifest.sha256)
    try:
        specimen = make_specimen() if kept is None else kept.specimen
    except OpatlasError as error:
        yield Bench(Outcome(Status.UNSUPPORTED, str(error)))
        return
    except (MemoryError, OSError) as error:
        yield Bench(Outcome(Status.OUT_OF_MEMORY, f"its inputs do not fit: {error}"))
        return
    left: KeptSetUp | None = None
    try:
        bench = RacingBench(equipment, specimen, setting, default, limits, kept)
        try:
            yield bench
        finally:
            bench.settle_doubts()
            bench.drop_default()
            left = bench.left_behind()
    finally:
        if left is None:
            specimen.close()
        else:
            equipment.kept.give(default.manifest.sha256, left)
