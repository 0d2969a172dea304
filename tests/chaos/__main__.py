"""``python -m tests.chaos --minutes 10 [--seed N]``: what ``make chaos`` runs. 1 where a rule was broken.

A random schedule of faults on two web servers, two workers and a courier over a private PostgreSQL and Redis,
while jobs ask on and on; then all is healed, what was accepted is waited for, and the books are held against
the traces. The seed reproduces schedule and questions (not the moments at which a process is hit).
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos import oracle
from tests.chaos.asking import Asker
from tests.chaos.cluster import Cluster
from tests.chaos.faults import FAULTS
from tests.chaos.schedule import Fault, schedule

ASKERS = 3
SETTLE_S = 240.0
KEPT = Path("var/chaos")

OPEN = """
SELECT (SELECT COUNT(*) FROM tuning_exploration WHERE state IN ('queued', 'running'))
     + (SELECT COUNT(*) FROM catalog_miss WHERE state IN ('waiting', 'postponed', 'promoted'))
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    said = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers and namespaces go whatever happens
    print(f"Seed {said.seed}, {said.minutes:g} minutes.", flush=True)
    with Cluster(lambda line: print(f"          {line}", flush=True)) as cluster:
        names = [name for name in FAULTS if name not in cluster.skipped]
        planned = schedule(said.seed, said.minutes, names)
        run = Run(cluster, planned, said.seed)
        run.until(said.minutes * 60)
        broken = run.judge()
        run.summary(broken)
        if broken:
            _keep(cluster)
    return 1 if broken else 0


class Run:
    """Faults begun and ended while askers ask."""

    def __init__(self, cluster: Cluster, planned: list[Fault], seed: int) -> None:
        self.cluster, self.planned, self.seed = cluster, planned, seed
        self._endings: list[tuple[float, Callable[[], None]]] = []
        servers = [(node.host, node.port) for node in cluster.nodes.values()]
        self.askers = [Asker(n, seed, servers, cluster.key, cluster.answers) for n in range(1, ASKERS + 1)]
        self.done: Counter[str] = Counter()
        self.began = time.monotonic()

    def until(self, seconds: float) -> None:
        for asker in self.askers:
            asker.start()
        waiting = list(self.planned)
        while (now := time.monotonic() - self.began) < seconds or self._endings:
            while waiting and waiting[0].at_s <= now:
                self._begin(waiting.pop(0), now)
            for due, end in [one for one in self._endings if one[0] <= now]:
                end()
                self._endings.remove((due, end))
            self.cluster.look()
            time.sleep(0.1)

    def _begin(self, fault: Fault, now: float) -> None:
        print(fault, flush=True)
        ending = FAULTS[fault.name](self.cluster, **fault.about)
        self.done[fault.name] += 1
        if ending is not None:
            self._endings.append((now + ending[0], ending[1]))

    def judge(self) -> list[str]:
        """Everything healed and waited for; what was broken."""
        broken = self._settle()
        for node in self.cluster.nodes.values():
            node.stop()
        for node in self.cluster.nodes:
            self.cluster.manage("drain_journal", node=node)
        answers = _lines(self.cluster.answers)
        trials = "SELECT exploration_id, fence FROM tuning_trial ORDER BY id"
        rules = (
            oracle.nothing_was_refused(answers),
            oracle.every_miss_has_ended(answers, self._misses()),
            oracle.nothing_is_explored_twice_at_once(_lines(self.cluster.passed)),
            oracle.trials_follow_fences(self.cluster.query(trials)),
            oracle.what_was_served_is_what_is_booked(answers, self._books()),
        )
        return broken + [sentence for rule in rules for sentence in rule]

    def _settle(self) -> list[str]:
        for asker in self.askers:
            asker.stop.set()
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            self.cluster.look()
            ((left,),) = self.cluster.query(OPEN)
            asking = [asker.name for asker in self.askers if asker.is_alive()]
            if not left and not asking:
                return []
            time.sleep(0.5)
        for asker in self.askers:
            asker.give_up.set()
        return [f"After {SETTLE_S:.0f} s of peace {left} misses and explorations are open, and {asking} ask."]

    def _misses(self) -> dict[str, tuple[str, str]]:
        rows = self.cluster.query(
            "SELECT operator.key, miss.state, miss.reason FROM catalog_miss miss "
            "JOIN catalog_operator operator ON operator.id = miss.operator_id"
        )
        return {key: (state, reason) for key, state, reason in rows}

    def _books(self) -> oracle.Books:
        charged = "catalog_usage WHERE segment LIKE 'charged-%'"
        return oracle.Books(
            free_usages=self._one("SELECT COUNT(*) FROM catalog_usage WHERE segment NOT LIKE 'charged-%'"),
            charged_usages=self._one(f"SELECT COUNT(*) FROM {charged}"),
            entries=self._one("SELECT COUNT(*) FROM billing_ledgerentry WHERE kind = 'charge'"),
            entries_usages=self._one("SELECT COUNT(DISTINCT usage_id) FROM billing_ledgerentry"),
            day_entries=self._one("SELECT SUM(entries) FROM billing_ledgerday WHERE kind = 'charge'"),
            month_hits=self._one("SELECT SUM(hits) FROM billing_monthcount"),
            tally_hits=self._one("SELECT SUM(hits) FROM catalog_lookuptally"),
            balance_micros=self._one("SELECT SUM(balance_micros) FROM billing_account"),
            entered_micros=self._one("SELECT SUM(amount_micros) FROM billing_ledgerentry"),
        )

    def _one(self, sql: str) -> int:
        ((value,),) = self.cluster.query(sql)
        return int(value or 0)

    def summary(self, broken: list[str]) -> None:
        answers, states = _lines(self.cluster.answers), Counter(one for one, _ in self._misses().values())
        print("\nFaults: " + ", ".join(f"{name} {n}" for name, n in sorted(self.done.items())))
        for name, why in self.cluster.skipped.items():
            print(f"NOT DONE: {name}: {why}")
        tries = sum(line["tries"] for line in answers)
        hits = Counter[str]()
        for line in answers:
            hits.update(charged=line["charged"], free=line["free"], misses=len(line["misses"]))
        print(f"Lookups answered: {len(answers)} in {tries} tries; hits charged {hits['charged']}, free "
              f"{hits['free']}; misses {hits['misses']}, of operators that ended "
              + ", ".join(f"{state} {n}" for state, n in sorted(states.items())))  # fmt: skip
        places = Counter(line["place"] for line in _lines(self.cluster.passed))
        print("Places passed: " + ", ".join(f"{place} {n}" for place, n in sorted(places.items())))
        for sentence in broken[:40]:
            print(f"BROKEN: {sentence}")
        print(f"{len(broken)} broken; seed {self.seed}.", flush=True)


def _lines(path: Path) -> list[Any]:
    """Whole lines; the last of a process that was killed may be torn, and then says nothing."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _keep(cluster: Cluster) -> None:
    """Logs and traces of a run that broke something, to be read."""
    import shutil

    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    for path in (cluster.passed, cluster.answers, *cluster.folder.glob("logs-*")):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, KEPT / path.name)
    print(f"Logs and traces: {KEPT}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
