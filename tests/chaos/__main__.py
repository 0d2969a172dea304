"""``python -m tests.chaos --minutes 10 [--seed N]``: what ``make chaos`` runs. 1 where a rule was broken.

A random schedule of faults on two web servers, two workers and a courier over a private PostgreSQL and Redis,
while jobs ask, models are uploaded and a receiver is told on and on; then all is healed, what was accepted is
waited for, and rows are held against the traces. The seed reproduces schedule and questions (not the moments
at which a process is hit).
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
from tests.chaos.asking import Asker, CarefulClient
from tests.chaos.cluster import Cluster
from tests.chaos.faults import FAULTS
from tests.chaos.schedule import Fault, schedule
from tests.chaos.uploading import Uploader

ASKERS, UPLOADERS = 3, 2
SETTLE_S = 240.0
KEPT = Path("var/chaos")

OPEN = """
SELECT (SELECT COUNT(*) FROM tuning_exploration WHERE state IN ('queued', 'running'))
     + (SELECT COUNT(*) FROM catalog_miss WHERE state IN ('waiting', 'postponed', 'promoted'))
     + (SELECT COUNT(*) FROM uploads_upload WHERE state IN ('receiving', 'waiting', 'running'))
"""
OF_JOBS = "organisation_id = (SELECT id FROM catalog_organisation WHERE host)"


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
        jobs = [Asker(n, seed, servers, cluster.key, cluster.answers) for n in range(1, ASKERS + 1)]
        givers = [
            Uploader(n, seed, servers, cluster.uploader_key, cluster.uploads) for n in range(1, UPLOADERS + 1)
        ]
        self.clients: list[CarefulClient] = [*jobs, *givers]
        self.done: Counter[str] = Counter()
        self.began = time.monotonic()

    def until(self, seconds: float) -> None:
        for client in self.clients:
            client.start()
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
        answers, passed = _lines(self.cluster.answers), _lines(self.cluster.passed)
        uploads, told = _lines(self.cluster.uploads), _lines(self.cluster.told)
        trials = "SELECT exploration_id, fence FROM tuning_trial ORDER BY id"
        rules = (
            oracle.nothing_was_refused(answers),
            oracle.every_miss_has_ended(answers, self._misses()),
            oracle.nothing_is_explored_twice_at_once(passed),
            oracle.trials_follow_fences(self.cluster.query(trials)),
            oracle.what_was_served_is_what_is_booked(answers, self._books()),
            oracle.every_upload_ends_as_it_must(uploads, passed),
            oracle.every_done_upload_is_one_model(uploads, self._models()),
            oracle.nothing_is_taken_apart_twice_at_once(passed),
            oracle.every_message_is_signed(told),
            oracle.what_happened_is_one_message(told),
        )
        return broken + [sentence for rule in rules for sentence in rule]

    def _settle(self) -> list[str]:
        for client in self.clients:
            client.stop.set()
        until = time.monotonic() + SETTLE_S
        while left := self._left():
            if time.monotonic() > until:
                for client in self.clients:
                    client.give_up.set()
                left = list(dict.fromkeys([*left, *self._untold()]))
                return [f"After {SETTLE_S:.0f} s of peace: {sentence}" for sentence in left]
            self.cluster.look()
            time.sleep(0.5)
        return []

    def _left(self) -> list[str]:
        """What has not come to its end yet; what is told is looked at once all else has."""
        ((number,),) = self.cluster.query(OPEN)
        left = [f"{number} misses, explorations and uploads are open."] if number else []
        left += [f"{client.name} is not through." for client in self.clients if client.is_alive()]
        left += oracle.nothing_is_left_of_uploads(self.cluster.kept_uploads())
        return left or self._untold()

    def _untold(self) -> list[str]:
        answers, told = _lines(self.cluster.answers), _lines(self.cluster.told)
        explorations = self.cluster.query(
            "SELECT id, first_result_at IS NOT NULL, CASE WHEN finished_at IS NULL THEN '' ELSE state END "
            "FROM tuning_exploration"
        )
        ended = ((number, bool(first), str(state)) for number, first, state in explorations)
        return [
            *oracle.what_ended_was_told(_lines(self.cluster.passed), ended, told),
            *oracle.every_charge_was_told(answers, told),
        ]

    def _models(self) -> list[tuple[str, int]]:
        rows = self.cluster.query(
            "SELECT model.name, COUNT(part.id) FROM catalog_model model "
            "LEFT JOIN catalog_modeloperator part ON part.model_id = model.id GROUP BY model.id"
        )
        return [(str(name), int(count)) for name, count in rows]

    def _misses(self) -> dict[str, tuple[str, str]]:
        rows = self.cluster.query(
            "SELECT operator.key, miss.state, miss.reason FROM catalog_miss miss "
            "JOIN catalog_operator operator ON operator.id = miss.operator_id"
        )
        return {key: (state, reason) for key, state, reason in rows}

    def _books(self) -> oracle.Books:
        usages = f"catalog_usage WHERE {OF_JOBS} AND segment"
        entries = f"billing_ledgerentry WHERE {OF_JOBS}"
        return oracle.Books(
            free_usages=self._one(f"SELECT COUNT(*) FROM {usages} NOT LIKE 'charged-%'"),
            charged_usages=self._one(f"SELECT COUNT(*) FROM {usages} LIKE 'charged-%'"),
            entries=self._one(f"SELECT COUNT(*) FROM {entries} AND kind = 'charge'"),
            entries_usages=self._one(f"SELECT COUNT(DISTINCT usage_id) FROM {entries}"),
            day_entries=self._one(
                f"SELECT SUM(entries) FROM billing_ledgerday WHERE {OF_JOBS} AND kind = 'charge'"
            ),
            month_hits=self._one(f"SELECT SUM(hits) FROM billing_monthcount WHERE {OF_JOBS}"),
            tally_hits=self._one(f"SELECT SUM(hits) FROM catalog_lookuptally WHERE {OF_JOBS}"),
            balance_micros=self._one(f"SELECT SUM(balance_micros) FROM billing_account WHERE {OF_JOBS}"),
            entered_micros=self._one(f"SELECT SUM(amount_micros) FROM {entries}"),
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
        self._summary_of_uploads()
        self._summary_of_messages()
        places = Counter(line["place"] for line in _lines(self.cluster.passed))
        print("Places passed: " + ", ".join(f"{place} {n}" for place, n in sorted(places.items())))
        for sentence in broken[:40]:
            print(f"BROKEN: {sentence}")
        print(f"{len(broken)} broken; seed {self.seed}.", flush=True)

    def _summary_of_uploads(self) -> None:
        uploads = _lines(self.cluster.uploads)
        ends = Counter((line.get("state", str(line["status"])), line["kind"]) for line in uploads)
        said = ", ".join(f"{state} {n} ({kind})" for (state, kind), n in sorted(ends.items()))
        print(f"Uploads: {len(uploads)} in {sum(line['tries'] for line in uploads)} tries: {said}")

    def _summary_of_messages(self) -> None:
        told = _lines(self.cluster.told)
        kinds = Counter({line["id"]: line.get("type", "unsigned") for line in told}.values())
        ((failed,),) = self.cluster.query("SELECT COUNT(*) FROM webhooks_attempt WHERE error <> ''")
        said = ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))
        print(f"Webhook messages: {said}, which arrived {len(told)} times; {failed} tries failed")


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
    traces = (cluster.passed, cluster.answers, cluster.uploads, cluster.told)
    for path in (*filter(Path.exists, traces), *cluster.folder.glob("logs-*")):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, KEPT / path.name)
    print(f"Logs and traces: {KEPT}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
