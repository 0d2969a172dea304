"""The contest: the catalogue's best against PyTorch eager, ONNX Runtime, torch.compile and each route alone.

``sample`` says which operators and why those, ``course`` has a real service explore them, ``again`` measures
everything that matters once more in fresh processes, ``figures`` says what came of it, ``table`` prints it.

``SAMPLE=file.json`` takes another operator list in the form of the open logs, ``BUDGET_S=`` bounds the whole
(seconds). A run that was cut off goes on where it stopped; ``FRESH=1`` begins anew. Pages show it while it
runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.conf import conf
from bench.record import FOLDER, BenchRecord

BUDGET_S = 3600.0
EXPLORING_SHARE = 0.65  # of the budget; the rest is for measuring again
HOME = FOLDER / "contest"


def main() -> None:
    """One run, or the rest of one; writes ``var/bench/contest.json``."""
    from bench.contest.sample import SAMPLE, read_sample

    path = Path(conf().sample or SAMPLE)
    budget_s = conf().budget_s or BUDGET_S
    entrants = read_sample(path)
    record = BenchRecord("contest")
    home = _home(record, hashlib.sha256(path.read_bytes()).hexdigest())
    from bench.contest import course

    if "explored_s" not in record.parts:
        spent_s = course.explore(entrants, home, budget_s * EXPLORING_SHARE, _say)
        record.keep("explored_s", spent_s)
    _measure_again(entrants, record, home, budget_s - record.parts["explored_s"])
    _finish(record, entrants, path, budget_s)


def _measure_again(entrants: Any, record: BenchRecord, home: Path, budget_s: float) -> None:
    from bench.contest.remeasurement import remeasurement

    todo = [one for one in entrants if one.operator.key not in record.parts]
    if not todo:
        return
    began = time.monotonic()
    _say(f"Measuring {len(todo)} operators again, beside the baselines …")
    with remeasurement(home) as course:
        for number, entrant in enumerate(todo):
            if time.monotonic() - began > budget_s:
                _say(f"The budget is spent; {len(todo) - number} operators are not measured again.")
                return
            row = course.row(entrant)
            record.keep(entrant.operator.key, asdict(row))
            what = f"{row.chosen:.2f}× {row.route}: {row.label}" if row.answered else row.reason
            _say(f"  {number + 1}/{len(todo)}  {row.operator[:60]}  {what}  ({row.took_s:.1f} s)")


def _finish(record: BenchRecord, entrants: Any, path: Path, budget_s: float) -> None:
    from bench.contest import table
    from bench.contest.summary import ContestRow, summarize

    rows = [
        ContestRow(**record.parts[one.operator.key])
        if one.operator.key in record.parts
        else ContestRow(one.operator.key, one.example, one.example, one.calls, reason="the budget was spent")
        for one in entrants
    ]
    result = {
        **summarize(rows),
        "budget_s": budget_s,
        "explored_s": round(record.parts["explored_s"], 1),
        "measured_again_s": round(sum(row.took_s for row in rows), 1),
        "sample": path.name,
        "cores": os.cpu_count(),
        "trials": trials_by_route(),
        "rows": [row.to_json() for row in rows],
    }
    table.write(result, FOLDER / "contest.md")
    record.finish(result, shown=[name for name in result if name != "rows"])
    print(table.summary(result))


def trials_by_route() -> dict[str, dict[str, Any]]:
    """Trials of this run's explorations, by route; a route's "cannot" is none."""
    from bench.trials import summary
    from tuning.measure.outcome import Status
    from tuning.models import Trial

    return summary(Trial.objects.exclude(status=Status.UNSUPPORTED), os.cpu_count() or 1)


def _home(record: BenchRecord, sample_sha256: str) -> Path:
    """The run's own catalogue; that of a run which was cut off, where it had the same sample. Django is set
    up over it."""
    home = HOME.resolve()
    if record.parts.get("sample_sha256") != sample_sha256:
        shutil.rmtree(home, ignore_errors=True)
        record.parts.clear()
        record.keep("sample_sha256", sample_sha256)
    home.mkdir(parents=True, exist_ok=True)
    os.environ["OPATLAS_HOME"] = str(home)
    os.environ.setdefault("OPATLAS_LOG", "WARNING")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    return home


def _say(line: str) -> None:
    print(line, flush=True)
