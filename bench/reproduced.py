"""Whether the contest's published times hold: its bests are timed again, in fresh processes.

After ``ONLY=contest``, over the state that it left: the service was stopped since, and each best is at
least ``AFTER_S`` old (half an hour; it waits for those that are younger). ``LIMIT=`` takes a sample. A run
that was cut off goes on. Writes ``var/bench/reproduced.json``, and the two figures into ``contest.json``
and its table. When an interval holds: ``tuning/retiming/holding.py``.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from bench.conf import conf
from bench.contest import HOME, PARTS, RESULT, TABLE
from bench.contest.home import last_result, set_up
from bench.record import BenchRecord


def main() -> None:
    contest = last_result()
    if contest is None or not HOME.exists() or PARTS.exists():
        raise SystemExit("No contest has ended that could be timed again: `make bench ONLY=contest` first.")
    record = BenchRecord("reproduced")
    about = {"identity": contest["identity"], "explored": contest["explored"], "after_s": conf().after_s}
    if record.parts.get("about") != about:
        record.parts.clear()
        record.keep("about", about)
    home = set_up(HOME)
    rows = _retime(record, home)
    from tuning.retiming.holding import summarize_retimed

    found = summarize_retimed(rows) | {"after_s": conf().after_s, "sample": contest["sample"]}
    _enter(contest, found)
    result = found | {"rows": [row.to_json() for row in rows]}
    record.finish(result, shown=[name for name in result if name != "rows"])


def _retime(record: BenchRecord, home: Any) -> list[Any]:
    from django.utils import timezone

    from opatlas.identity import detect_target
    from tuning.retiming.holding import Retimed
    from tuning.retiming.retiming import published_bests, retimer

    target = detect_target()
    bests = published_bests(target, timezone.now(), conf().limit or None)
    rows = []
    with retimer(home, target) as course:
        for number, best in enumerate(bests):
            name = f"{best.operator.key} {best.setting.key}"
            if name not in record.parts:
                _wait_until_old(best, conf().after_s)
                record.keep(name, asdict(course.retime(best)))
            rows.append(Retimed(**record.parts[name]))
            print(f"  {number + 1}/{len(bests)}  {rows[-1]}", flush=True)
    return rows


def _wait_until_old(best: Any, after_s: float) -> None:
    from django.utils import timezone

    wait_s = after_s - (timezone.now() - best.measured_at).total_seconds()
    if wait_s > 0:
        print(f"  The next best is {after_s:.0f} s old in {wait_s:.0f} s.", flush=True)
        time.sleep(wait_s)


def _enter(contest: dict[str, Any], found: dict[str, Any]) -> None:
    """Into the contest's JSON and table."""
    from bench.contest import table

    contest |= {name: found[name] for name in ("reproduced", "median_half_width")} | {"reproducing": found}
    RESULT.write_text(json.dumps(contest, indent=1))
    table.write(contest, TABLE)
