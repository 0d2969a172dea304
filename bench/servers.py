"""Private PostgreSQL and Redis servers for benches and tests, from installed binaries, on free ports.

They never touch servers that already run. A server dies with the process that started it, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dashboard.run.stack import free_port

NOT_TESTED = "NOT TESTED, a program is missing"
"""Begins the reason of every test skipped for want of a server; the terminal summary looks for it."""

_UNPRIVILEGED = ("postgres", "nobody")
_START_S = 120.0


class MissingProgram(Exception):
    """A server cannot be started here; the message says what to install."""


def postgres_folder() -> Path | None:
    """Where initdb and postgres lie: Debian keeps them out of the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


class PrivatePostgres:
    """A PostgreSQL server with its own data, on its own port. Durability is off: its data is thrown away."""

    def __init__(self) -> None:
        programs = postgres_folder()
        if programs is None:
            raise MissingProgram(f"{NOT_TESTED}: PostgreSQL (apt-get install postgresql)")
        # A socket's path has at most 107 characters, so it cannot lie below a long TMPDIR.
        self._folder = Path(tempfile.mkdtemp(prefix="opg", dir="/tmp"))
        self.programs = programs
        self._user = _unprivileged_user()
        self._databases = 0
        self.port = free_port()
        if self._user:
            shutil.chown(self._folder, self._user)
        data = self._folder / "data"
        self._make(data)
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self._folder,
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "max_connections": 100,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = _start(
            [programs / "postgres", "-D", data, *options],
            self._folder / "log",
            user=self._user,
            # The postmaster's "immediate shutdown": it takes its children with it.
            death=signal.SIGQUIT,
        )
        _wait_until(self._answers, self._process, self._folder / "log")

    def _make(self, data: Path) -> None:
        options = ["-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--wal-segsize=1"]
        checked([self.programs / "initdb", "-D", data, "-U", "opatlas", *options], user=self._user)

    def url(self, database: str = "postgres") -> str:
        return f"postgres://opatlas@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The DATABASE_URL of a new, empty database."""
        self._databases += 1
        return self.create(f"opatlas_{self._databases}")

    def create(self, name: str, template: str = "template1") -> str:
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def stop(self) -> None:
        _stop(self._process, signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def pack(self, path: Path) -> None:
        """End it in order, and write its data to an archive."""
        _stop(self._process, signal.SIGINT)
        checked(["tar", "-C", self._folder, "-cf", path, "data"])

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class KeptPostgres:
    """A PostgreSQL server whose data stays in ``folder`` when it is stopped, for benches of much data.

    With the memory that a service of that size would give it. A context manager; ``url`` is its one database.
    """

    SETTINGS: Mapping[str, object] = {
        "listen_addresses": "127.0.0.1",
        "shared_buffers": "1GB",
        "work_mem": "32MB",
        "effective_cache_size": "6GB",
        "random_page_cost": "1.1",
        "max_wal_size": "8GB",
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
    }

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.port = free_port()
        self.url = f"postgres://opatlas@127.0.0.1:{self.port}/opatlas"

    def __enter__(self) -> KeptPostgres:
        programs = postgres_folder()
        if programs is None:
            raise MissingProgram(f"{NOT_TESTED}: PostgreSQL (apt-get install postgresql)")
        user = _unprivileged_user()
        new = not (self._folder / "data" / "PG_VERSION").exists()
        if new:
            self._folder.mkdir(parents=True, exist_ok=True)
            if user:
                shutil.chown(self._folder, user)
            options = ["-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
            checked([programs / "initdb", "-D", self._folder / "data", "-U", "opatlas", *options], user=user)
        # A socket's path has at most 107 characters.
        self._sockets = Path(tempfile.mkdtemp(prefix="opg", dir="/tmp"))
        if user:
            shutil.chown(self._sockets, user)
        settings = {**self.SETTINGS, "port": self.port, "unix_socket_directories": self._sockets}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = _start(
            [programs / "postgres", "-D", self._folder / "data", *options],
            self._folder / "log", user=user, death=signal.SIGINT,
        )  # fmt: skip
        _wait_until(self._answers, self._process, self._folder / "log")
        if new:
            self._command("CREATE DATABASE opatlas")
        return self

    def __exit__(self, *exc: object) -> None:
        _stop(self._process, signal.SIGINT, timeout_s=120)  # "fast shutdown": a clean end
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _command(self, statement: str) -> None:
        import psycopg

        address = self.url.removesuffix("opatlas") + "postgres"
        with psycopg.connect(address, autocommit=True, connect_timeout=2) as connection:
            connection.execute(statement)

    def _answers(self) -> bool:
        import psycopg

        try:
            self._command("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


class PrivateRedis:
    """A Redis server that keeps nothing on disk."""

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise MissingProgram(f"{NOT_TESTED}: Redis (apt-get install redis-server)")
        self._folder = Path(tempfile.mkdtemp(prefix="ord"))
        self._databases = 0
        self.port = free_port()
        arguments = ["--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        arguments += ["--dir", self._folder, "--databases", 256]
        self._process = _start([program, *arguments], self._folder / "log", death=signal.SIGTERM)
        _wait_until(self._answers, self._process, self._folder / "log")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def new_url(self) -> str:
        """A database number that no other test uses."""
        self._databases += 1
        return f"redis://127.0.0.1:{self.port}/{self._databases}"

    def stop(self) -> None:
        _stop(self._process, signal.SIGTERM)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root; everybody else runs it as themselves."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in _UNPRIVILEGED:
        if name in known:
            return name
    raise MissingProgram(f"{NOT_TESTED}: PostgreSQL needs a user that is not root")


def _as_user(user: str | None) -> dict[str, object]:
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def checked(command: list[object], user: str | None = None, stdin: IO[bytes] | None = None) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        stdin=stdin, capture_output=True, text=True, cwd="/", **_as_user(user),
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")


def _start(
    command: list[object], log: Path, *, death: signal.Signals, user: str | None = None
) -> subprocess.Popen[bytes]:
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(1, int(death))  # PR_SET_PDEATHSIG

    with log.open("wb") as output:
        return subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for pytest, which then stops us in order
            preexec_fn=die_with_parent,
            **_as_user(user),
        )


def _wait_until(answers: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"{process.args[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes], how: signal.Signals, timeout_s: float = 15) -> None:
    process.send_signal(how)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


@contextmanager
def private_postgres() -> Iterator[str]:
    """The DATABASE_URL of an empty database on a server of its own, for as long as the block lasts."""
    server = PrivatePostgres()
    try:
        yield server.new_database()
    finally:
        server.stop()


@contextmanager
def private_redis() -> Iterator[str]:
    """The BROKER_URL of a Redis server of its own, for as long as the block lasts."""
    server = PrivateRedis()
    try:
        yield server.url
    finally:
        server.stop()
