"""What can be done to a cluster. Each fault begins and gives what ends it, and after how many seconds."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
from redis import Redis

from tests.chaos.cluster import Cluster, Node, resume, signal_all
from tests.chaos.schedule import kind_of

Ending = tuple[float, Callable[[], None]] | None
BELLS = 1000

RING = f"""
import django; django.setup()
from tests.tuning.fakes import TARGET
from tuning.celery import WAKE, app
with app.producer_pool.acquire() as producer:
    for _ in range({BELLS}):
        app.send_task(WAKE, queue=TARGET.capability, producer=producer, ignore_result=True)
"""


def kill(cluster: Cluster, process: str) -> Ending:
    """SIGKILL, with all that it started: the supervisor starts it again."""
    node, name = _named(cluster, process)
    if found := node.find(name):
        signal_all(found, signal.SIGKILL)
    return None


def stop(cluster: Cluster, process: str, seconds: float) -> Ending:
    """SIGSTOP, past the lease most often, then CONT (unless its supervisor was faster)."""
    node, name = _named(cluster, process)
    if (found := node.find(name)) is None:
        return None
    signal_all(found, signal.SIGSTOP)
    return seconds, lambda: resume(found)


def failpoint_kill(cluster: Cluster, process: str, place: str, number: int) -> Ending:
    """Killed now, and again where its successor passes that place for the n-th time."""
    return _next_start(cluster, process, {"OPATLAS_FAILPOINTS": f"{place}=kill@{number}"})


def failpoint_stop(cluster: Cluster, process: str, place: str, number: int) -> Ending:
    """The same with SIGSTOP: its supervisor hears nothing more, and kills it."""
    return _next_start(cluster, process, {"OPATLAS_FAILPOINTS": f"{place}=stop@{number}"})


def slow_disk(cluster: Cluster, process: str, place: str, seconds: float) -> Ending:
    return _next_start(cluster, process, {"OPATLAS_FAILPOINTS": f"{place}=sleep:{seconds}"})


def clock(cluster: Cluster, process: str, hours: int) -> Ending:
    """Its successor's wall clock is that far off."""
    faked = {"LD_PRELOAD": cluster.faketime, "FAKETIME": f"{hours:+d}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return _next_start(cluster, process, {**faked, "DONT_FAKE_MONOTONIC": "1"})


def broker_wiped(cluster: Cluster) -> Ending:
    Redis(port=cluster.redis.port).flushall()
    return None


def bells(cluster: Cluster) -> Ending:
    """A thousand doorbells where one would do."""
    cluster.run("-c", RING)
    return None


def database_gone(cluster: Cluster, seconds: float) -> Ending:
    """Nobody is connected any more, and nobody may connect."""
    name = cluster.database.rpartition("/")[2]

    def allow(may: bool) -> None:
        with psycopg.connect(cluster.postgres.url(), autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS {may}".encode())
            if not may:
                sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                connection.execute(sql, [name])

    allow(False)
    return seconds, lambda: allow(True)


def network_cut(cluster: Cluster, seconds: float) -> Ending:
    """Node b reaches nobody, and nobody it: packets are lost, no connection is refused."""

    def wire(state: str) -> None:
        subprocess.run(["ip", "link", "set", cluster.wire, state], check=True)

    wire("down")
    return seconds, lambda: wire("up")


def full_disk(cluster: Cluster, node: str, seconds: float) -> Ending:
    """No byte is left for a node's journal."""
    filler = cluster.folder / node / "filler"
    try:
        with filler.open("wb") as out:
            while True:
                out.write(bytes(1 << 16))
                out.flush()
    except OSError:
        pass
    return seconds, lambda: filler.unlink(missing_ok=True)


def receiver_down(cluster: Cluster, seconds: float) -> Ending:
    """Whoever is told by webhook answers 503."""

    def be(down: bool) -> None:
        cluster.hearer.is_down = down

    be(True)
    return seconds, lambda: be(False)


def corrupt_store(cluster: Cluster) -> Ending:
    """One bit of one stored file is another."""
    files = sorted(path for path in (cluster.folder / "store").glob("??/??/*") if path.stat().st_size)
    if files:
        _flip(files[len(files) // 2])
    return None


FAULTS: Mapping[str, Callable[..., Ending]] = {
    one.__name__: one
    for one in (
        kill, stop, failpoint_kill, failpoint_stop, slow_disk, clock, broker_wiped, bells, database_gone,
        network_cut, full_disk, corrupt_store, receiver_down,
    )
}  # fmt: skip


def _named(cluster: Cluster, process: str) -> tuple[Node, str]:
    node, _, name = process.partition("/")
    return cluster.nodes[node], name


def _next_start(cluster: Cluster, process: str, environment: dict[str, str]) -> Ending:
    assert kind_of(process)
    node, name = _named(cluster, process)
    node.armed[name] = environment
    return kill(cluster, process)


def _flip(path: Path) -> None:
    content: Any = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
