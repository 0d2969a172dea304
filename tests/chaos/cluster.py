"""Two nodes over a private PostgreSQL and Redis: each a web server and a worker, one with the courier.

They are what ``make run`` starts, supervised as there, with workers whose laboratory is a fake: what is
tried is who loses what, not how fast kernels are. As root node ``b`` lives in a network namespace of its own,
behind a wire that can be cut, and each node's state lies on a small tmpfs that can be filled. All of it is
gone at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg

from dashboard.run import supervising
from dashboard.run.stack import Process, Stack, free_port
from dashboard.run.supervising import Supervisor
from tests.chaos.hearing import Hearer
from tests.chaos.relay import Relay
from tests.chaos.uploading import MEMORY_MIB, MOST_NODES
from tests.dashboard.webhooks.receiver import receiving
from tests.databases import ROOT
from tests.services import PrivatePostgres, PrivateRedis
from tests.tuning.live import SHORT

HERE, THERE = "10.213.77.1", "10.213.77.2"
TMPFS_MIB = 64
SILENT_S = 10
UPLOADING = "Uploaders"
"""Whose the models are: the jobs' hits and money are another's, so that they can be counted."""

SETUP = """
import django; django.setup()
from django.contrib.auth.models import User
from catalog.registry import default_organisation, register_target
from dashboard.billing import pricelist
from dashboard.billing.models import PriceRule
from dashboard.notifications.models import Subscription
from dashboard.webhooks import endpoints
from tests.tuning.fakes import TARGET
pricelist.add(PriceRule(name="all", currency="EUR", per_hit_micros=1_000), {"actor": "chaos"})
register_target(TARGET)
Subscription.objects.create(
    user=User.objects.create_superuser("chaos"), subject="filter", subject_key="all:filter:chaos",
    title="Every operator", on_best_changed=False, on_withdrawn=False, told_by=["webhook"])
print(endpoints.create(default_organisation(), %r, event_types=["exploration.ended", "ledger.charged"])[1])
"""
"""Everything has a price; who runs the service is told by webhook what is charged and how explorations end.
Prints the webhook's secret."""


class Node(Stack):
    """One machine. ``armed``: what the next start of a process has in its environment, by its name."""

    def __init__(
        self, name: str, host: str, within: list[str], environment: dict[str, str], logs: Path
    ) -> None:
        super().__init__(environment, port=free_port(), logs=logs, app="tests.tuning.fake_worker")
        self.name, self.host, self._within = name, host, within
        self.courier = name == "b"
        self.armed: dict[str, dict[str, str]] = {}

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def _start(
        self,
        name: str,
        command: list[str],
        waits_on: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Process:
        command = [self.host if word == "127.0.0.1" else word for word in command]
        armed = self.armed.pop(name, {})
        return super()._start(name, [*self._within, *command], waits_on, {**(more or {}), **armed})

    def find(self, name: str) -> Process | None:
        return next((one for one in self.processes if one.name == name and one.alive), None)


class Cluster(ExitStack):
    """Entered, both nodes answer. ``skipped``: fault → why it cannot be done here."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self.folder = Path(tempfile.mkdtemp(prefix="chaos"))
        self.nodes: dict[str, Node] = {}
        self.skipped: dict[str, str] = {}
        self.passed = self.folder / "passed.jsonl"
        self.answers = self.folder / "answers.jsonl"
        self.uploads = self.folder / "uploads.jsonl"
        self.told = self.folder / "told.jsonl"
        self._supervisors: list[Supervisor] = []

    def __enter__(self) -> Cluster:
        super().__enter__()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self) -> None:
        self.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.postgres, self.redis = PrivatePostgres(), PrivateRedis()
        self.callback(self.postgres.stop), self.callback(self.redis.stop)
        self.database = self.postgres.new_database(migrated=True)
        self.folder.joinpath("store").mkdir()
        for name in "ab":
            self._tmpfs(self.folder / name)
        within, host = self._wire()
        receiver = self.enter_context(receiving(host=HERE if within else "127.0.0.1"))
        self.hearer = Hearer(receiver, self.told)
        self._hears_at = receiver.address
        if not (library := _faketime()):
            self.skipped["clock"] = "libfaketime is not installed (apt-get install faketime)"
        self.faketime = library
        hosts = {"a": ("127.0.0.1", []), "b": (host, within)}
        for name, (address, prefix) in hosts.items():
            environment = self._environment(name, address)
            self.nodes[name] = Node(name, address, prefix, environment, self.folder / f"logs-{name}")
        self.key = self.manage("create_api_key", "chaos", "--scopes", "lookup").strip()
        self.uploader_key = self.manage(
            "create_api_key", "uploads", "--scopes", "models", "lookup", "--organisation", UPLOADING
        ).strip()
        self.hearer.secret = self.run("-c", SETUP % receiver.url).strip()
        # Whoever was killed again and again is still to come back within this run.
        supervising.LONGEST_PAUSE_S = 2.0
        for node in self.nodes.values():
            self.enter_context(node)
            self._supervise(node)

    def _supervise(self, node: Node) -> None:
        supervisor = Supervisor(node, lambda line: self._say(f"{node.name}: {line}"), silent_s=SILENT_S)
        supervisor.ask()
        self._supervisors.append(supervisor)

    def look(self) -> None:
        """What supervises each node, once."""
        for supervisor in self._supervisors:
            supervisor.look()

    def _environment(self, name: str, host: str) -> dict[str, str]:
        own = {
            "OPATLAS_HOME": str(self.folder / name),
            "OPATLAS_NODE": name,
            "OPATLAS_STORE": str(self.folder / "store"),
            "OPATLAS_LOCK": str(self.folder / f"lock-{name}"),
            "OPATLAS_HOSTS": f"{host},localhost,127.0.0.1",
            "OPATLAS_SECRET_KEY": "chaos" * 10,
            "OPATLAS_TRACE": str(self.passed),
            "OPATLAS_TUNING": "0",
            "OPATLAS_LOG": "WARNING",
            "OPATLAS_UPLOAD_NODES": str(MOST_NODES),
            "OPATLAS_UPLOAD_MEMORY_MIB": str(MEMORY_MIB),
            "OPATLAS_WEBHOOKS_ALLOW": self._hears_at,
            "DATABASE_URL": self.database,
            "BROKER_URL": self.redis.new_url(),
            "FAKE_STEP_S": "0.02",
            **{f"OPATLAS_RATE_{name}": "off" for name in ("LOOKUP", "API", "ADDRESS", "REFUSED")},
        }
        if name == "b":
            own["BROKER_URL"] = self.nodes["a"].environment["BROKER_URL"]
            if host != "127.0.0.1":
                own |= {part: self._relayed(own[part]) for part in ("DATABASE_URL", "BROKER_URL")}
        return SHORT | own

    def _relayed(self, url: str) -> str:
        port = url.partition("127.0.0.1:")[2].partition("/")[0]
        relay = self.enter_context(Relay(HERE, int(port)))
        return url.replace(f"127.0.0.1:{port}", f"{HERE}:{relay.port}")

    def _tmpfs(self, folder: Path) -> None:
        folder.mkdir()
        options = f"size={TMPFS_MIB}m"
        if os.geteuid() != 0 or _fails("mount", "-t", "tmpfs", "-o", options, "chaos", folder):
            self.skipped["full_disk"] = "a small tmpfs cannot be mounted here (root)"
            return
        self.callback(_fails, "umount", "--lazy", folder)

    def _wire(self) -> tuple[list[str], str]:
        """A namespace, and a pair of interfaces into it: how to run there, and its address."""
        space, ours = f"chaos{os.getpid()}", f"ch{os.getpid()}"
        steps = (
            f"ip netns add {space}",
            f"ip link add {ours} type veth peer name wire netns {space}",
            f"ip addr add {HERE}/30 dev {ours}",
            f"ip link set {ours} up",
            f"ip -n {space} addr add {THERE}/30 dev wire",
            f"ip -n {space} link set wire up",
            f"ip -n {space} link set lo up",
        )
        self.wire = ours
        self.callback(_fails, "ip", "link", "del", ours)
        self.callback(_fails, "ip", "netns", "del", space)
        if os.geteuid() != 0 or any(_fails(*step.split()) for step in steps):
            self.skipped["network_cut"] = "network namespaces cannot be made here (root)"
            return [], "127.0.0.1"
        return ["ip", "netns", "exec", space], THERE

    def run(self, *arguments: str, node: str = "a") -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "dashboard.settings", **self.local(node)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise RuntimeError(f"{arguments}: {done.stderr[-2000:]}")
        return done.stdout

    def local(self, node: str) -> dict[str, str]:
        """A node's environment as processes see it that run beside the servers."""
        servers = {name: self.nodes["a"].environment[name] for name in ("DATABASE_URL", "BROKER_URL")}
        return self.nodes[node].environment | servers | {"OPATLAS_TRACE": ""}

    def manage(self, *arguments: str, node: str = "a") -> str:
        return self.run("manage.py", *arguments, node=node)

    def kept_uploads(self) -> list[str]:
        """Names of files with bytes of uploads."""
        return [path.name for path in (self.folder / "store" / "uploads").glob("*")]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database) as connection:
            return connection.execute(sql.encode()).fetchall()


def signal_all(process: Process, number: int) -> None:
    """To a process and whatever it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.popen.pid, number)


def resume(process: Process) -> None:
    signal_all(process, signal.SIGCONT)


def _fails(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode != 0
    except OSError:
        return True


def _faketime() -> str:
    return next(iter(map(str, Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), "")
