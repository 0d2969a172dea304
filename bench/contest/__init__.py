"""The contest: the catalogue's best against PyTorch eager, ONNX Runtime, torch.compile and each route alone.

``sample`` says which operators and why those, ``course`` has a real service explore them, ``remeasurement``
measures everything that matters once more in fresh processes, ``summary`` says what came of it, ``table``
prints it; ``reproduced`` (a bench of its own) times what was published again, half an hour later.

``SAMPLE=heavy`` takes another list (``sample``), ``SAMPLE=file.json`` one in the form of the open logs;
``LIMIT=60`` the same 60 of it always; ``MAX_AUTOTUNE=0`` leaves that baseline out. ``BUDGET_S=`` bounds the
whole (seconds), or ``PER_OPERATOR_S=5`` exploring alone: what was not contested by then keeps its first
result. A run that was cut off goes on where it stopped; ``FRESH=1`` begins anew, ``KEEP=1`` explores on from
where the last one ended: 5 s an operator, then 10. Pages show it while it runs. Leave the tree alone
meanwhile, or run it in a clone: workers and their builds import what stands there at that moment.

Beside another version, on the same machine (7fa76a5 knows ``SAMPLE`` and ``BUDGET_S``, of which it explores
for 65 % and has the rest for measuring again; its JSON has no intervals and no 95th percentile)::

    python -m bench.contest.sample bench/data/contest_sample.json 60 /tmp/sixty.json
    git worktree add /tmp/old 7fa76a5 && ln -s $PWD/.venv /tmp/old/.venv && cd /tmp/old
    export SAMPLE=/tmp/sixty.json
    PYTHONPATH=/tmp/old BUDGET_S=461 .venv/bin/python -m bench contest  # 5 s for each of 60 operators
    cd - && RIVAL=/tmp/old/var/bench/contest PER_OPERATOR_S=5 make bench ONLY=contest

``RIVAL=`` puts what the old catalogue serves into the new one's races, so that both are judged by one race
(``rival`` in the JSON, in the old one's favour where it is faster: our regret counts it).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.conf import conf
from bench.record import FOLDER, BenchRecord
from opatlas.cores import usable_cores

HOME = FOLDER / "contest"
RESULT = FOLDER / "contest.json"
TABLE = FOLDER / "contest.md"
PARTS = FOLDER / "contest.parts.json"  # there while a run is under way, or was cut off


def main() -> None:
    """One run, or the rest of one; writes ``var/bench/contest.json``."""
    from bench.contest.plan import plan

    todo = plan(conf())
    record = BenchRecord("contest")
    home = open_home(record, todo.identity)
    from bench.contest import course

    def keep(explored: course.ContestProgress) -> None:
        record.keep("explored", asdict(explored))

    explored = course.ContestProgress(**record.parts.get("explored", {}))
    if not explored.ended and explored.spent_s < todo.exploring_s:
        course.explore(todo.entrants, home, todo.exploring_s, explored, keep, _say)
    _measure_again(todo, record, home)
    _finish(record, todo)


def _measure_again(todo: Any, record: BenchRecord, home: Path) -> None:
    from bench.contest.remeasurement import remeasurement

    left = [one for one in todo.entrants if one.operator.key not in record.parts]
    if not left:
        return
    spent_s = sum(record.parts[one.operator.key]["took_s"] for one in todo.entrants if one not in left)
    bound_s = todo.measuring_s(record.parts["explored"]["spent_s"])
    _say(f"Measuring {len(left)} operators again, beside the baselines …")
    with remeasurement(home, conf().rival, max_autotune=conf().max_autotune) as course:
        for number, entrant in enumerate(left):
            if spent_s > bound_s:
                _say(f"{bound_s:.0f} s are spent; {len(left) - number} operators are not measured again.")
                return
            row = course.row(entrant)
            spent_s += row.took_s
            record.keep(entrant.operator.key, asdict(row))
            what = f"{row.chosen:.2f}× {row.route}: {row.label}" if row.answered else row.reason
            _say(f"  {number + 1}/{len(left)}  {row.operator[:60]}  {what}  ({row.took_s:.1f} s)")


def _finish(record: BenchRecord, todo: Any) -> None:
    from bench.contest import table
    from bench.contest.summary import ContestRow, summarize

    rows = [
        ContestRow(**record.parts[one.operator.key])
        if one.operator.key in record.parts
        else ContestRow(one.operator.key, one.example, one.example, one.calls, reason="the budget was spent")
        for one in todo.entrants
    ]
    explored = record.parts["explored"]
    contested = explored["contested"]
    result = {
        **summarize(rows),
        "reproduced": None,  # by the bench of that name, later
        "median_half_width": None,
        "reproducing": None,
        "budget_s": todo.budget_s,
        "per_operator_s": todo.per_operator_s,
        "explored_s": round(explored["spent_s"], 1),
        "explored_s_per_operator": round(explored["spent_s"] / len(rows), 2),
        "contested": contested,
        "contest_s_per_operator": round(explored["contested_by_s"] / contested, 2) if contested else None,
        "measured_again_s": round(sum(row.took_s for row in rows), 1),
        "noisy_share": noisy_share(),
        "sample": todo.path.name,
        "identity": todo.identity,
        "explored": explored,
        "cores": usable_cores(),
        "trials": trials_by_route(),
        "rows": [row.to_json() for row in rows],
    }
    table.write(result, TABLE)
    record.finish(result, shown=[name for name in result if name != "rows"])
    print(table.summary(result))


def trials_by_route() -> dict[str, dict[str, Any]]:
    """Trials of this run's explorations, by route; a route's "cannot" is none."""
    from bench.trials import summary
    from tuning.measure.outcome import Status
    from tuning.models import Trial

    return summary(Trial.objects.exclude(status=Status.UNSUPPORTED), usable_cores())


def noisy_share() -> float | None:
    """Of this run's trials that came to be timed, those that the host was too restless for."""
    from tuning.measure.outcome import Status
    from tuning.models import Trial

    timed = Trial.objects.filter(status__in=(Status.OK, Status.SLOWER, Status.NOISY))
    count = timed.count()
    return round(timed.filter(status=Status.NOISY).count() / count, 4) if count else None


def open_home(record: BenchRecord, identity: str) -> Path:
    """The run's own catalogue, with Django set up over it: that of a run of the same operators which was cut
    off, or (``KEEP=1``) that ended; else a new one."""
    from bench.contest.home import set_up

    if record.parts.get("identity") != identity:
        explored = _explored_before(identity) if conf().keep else None
        record.parts.clear()
        record.keep("identity", identity)
        if explored is not None:
            record.keep("explored", explored | {"ended": False})
        return set_up(HOME, new=explored is None)
    return set_up(HOME)


def _explored_before(identity: str) -> dict[str, Any] | None:
    from bench.contest.home import last_result

    before = last_result()
    return before["explored"] if before is not None and before["identity"] == identity else None


def _say(line: str) -> None:
    print(line, flush=True)
