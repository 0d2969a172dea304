"""One laboratory whose machine has secrets: a signing key, a database, an environment variable, services."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from opatlas.identity import Operator, Setting, detect_target
from tests.configuring import configured
from tests.tuning.measure.conftest import TESTS, default_artifact
from tests.tuning.measure.kernels import relu_operator
from tuning.measure.laboratory import Bench, Laboratory
from tuning.measure.sandbox import tiers as sandbox

SECRET = "the-secret-of-this-machine"
SECRETS = (
    "keys/signing.pem",
    "secret_key",
    "opatlas.sqlite3",
    "broker/queue",
    "store/ab/artifact",
    "other-tenant/kernel.c",
)
"""What a home holds that no foreign code may see: keys, rows, messages, artifacts, other people's sources."""


@dataclass(frozen=True)
class Machine:
    """The laboratory, a bench of Relu in it, and what code in there must not reach."""

    lab: Laboratory
    bench: Bench
    operator: Operator
    setting: Setting
    secrets: tuple[Path, ...]
    port: int
    unix_socket: Path
    abstract: str  # name of a socket without a file
    neighbour: Path  # somebody's folder in the machine's /tmp
    listeners: tuple[socket.socket, ...]

    def visitors(self) -> int:
        """Connections that reached the services so far."""
        count = 0
        for listener in self.listeners:
            try:
                listener.accept()[0].close()
                count += 1
            except BlockingIOError:
                continue
        return count


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if (reason := sandbox.why_not("T2")) is not None:
        pytest.skip(f"tier T2: {reason}")
    home = tmp_path_factory.mktemp("home")
    secrets = tuple(home / name for name in SECRETS)
    for path in secrets:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(SECRET)
    left_open = os.open(secrets[0], os.O_RDONLY)
    os.set_inheritable(left_open, True)  # as by a careless worker
    listeners = (
        socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    )  # fmt: skip
    abstract = f"opatlas-test-{os.getpid()}"
    for listener, name in zip(listeners[1:], (str(home / "service.sock"), f"\0{abstract}"), strict=True):
        listener.bind(name)
        listener.listen()
    for listener in listeners:
        listener.setblocking(False)
    operator, setting = relu_operator(), Setting(threads=1)
    with (
        pytest.MonkeyPatch.context() as patch,
        configured(lock=home / "lock"),
        tempfile.TemporaryDirectory(prefix="opatlas-neighbour-", dir="/tmp") as neighbour,
    ):
        patch.setenv("OPATLAS_TEST_SECRET", SECRET)
        with Laboratory(home, detect_target(), tier="T2", readable=[TESTS]) as lab:
            lab.warm(())
            default = default_artifact(lab, operator, setting, home / "default")
            with lab.bench(operator, setting, default) as bench:
                assert bench.default.ok, bench.default
                port = listeners[0].getsockname()[1]
                yield Machine(
                    lab, bench, operator, setting, secrets, port, home / "service.sock", abstract,
                    Path(neighbour), listeners,
                )  # fmt: skip
    os.close(left_open)
    for listener in listeners:
        listener.close()
