"""The service on a copy of what another one has explored, for pictures: the home itself stays as it was."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dashboard.run.stack import Stack
from tests.databases import ROOT

NAME = "ada"
_LEFT = shutil.ignore_patterns("artifacts", "lab-*", "run", "logs", "machine.lock")


@dataclass(frozen=True)
class KeptService:
    """Where it answers, and whom it lets in: an administrator of the host organisation."""

    url: str
    password: str
    name: str = NAME


@contextmanager
def served_again(home: Path, models: Sequence[str] = (), explore_s: float = 0.0) -> Iterator[KeptService]:
    """With a worker and a courier of its own, ``models`` given and explored for ``explore_s`` at most, and
    what its jobs asked for asked for again. ``home`` is an OPATLAS_HOME on SQLite that no service uses."""
    if not (home / "opatlas.sqlite3").exists():
        raise SystemExit(f"{home} is no OPATLAS_HOME: there is no opatlas.sqlite3 in it.")
    with tempfile.TemporaryDirectory(prefix="opatlas-pictures-") as folder:
        copy = Path(folder) / "home"
        shutil.copytree(home, copy, ignore=_LEFT)
        # Files of the store are named by their content, and never written again.
        shutil.copytree(home / "artifacts", copy / "artifacts", copy_function=_linked)
        kept = KeptService("", secrets.token_urlsafe(16))
        environment = {
            "OPATLAS_HOME": str(copy),
            "OPATLAS_PASSWORD": kept.password,
            "OPATLAS_ALERTS_OFF": "silent",  # who worked there is gone, and that is nobody's news
            "DATABASE_URL": "",
            "BROKER_URL": "",
        }
        _manage(environment, "migrate", "--noinput", "--verbosity", "0")
        _manage(environment, "create_user", kept.name, "--role", "admin")
        with Stack(environment, logs=copy / "logs") as stack:
            given = ["--give", *models] if models else []
            lived_in = ["-m", "tests.dashboard.lived_in", stack.url, "--explore-s", str(explore_s), *given]
            _python(environment, *lived_in)
            yield KeptService(stack.url, kept.password)


def _linked(source: str, target: str) -> None:
    """A further name of the same file; on another disk a copy."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copy2(source, target)


def _manage(environment: dict[str, str], *arguments: str) -> None:
    _python(environment, "manage.py", *arguments)


def _python(environment: dict[str, str], *arguments: str) -> None:
    subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "dashboard.settings", **environment},
        check=True,
    )
