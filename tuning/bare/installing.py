"""``.venv/bin/python -m tuning.bare.installing -r FILE …``: ``pip install`` that says how far it is.

The first installation copies some three gigabytes, and pip says nothing while it does. This says it every few
seconds, leaves what pip says of errors as it is, and ends as pip does. What pip would compile file by file is
compiled afterwards on all cores.

Knows only the standard library, and of the product what knows no more: what it installs is not there yet.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread

from opatlas.cores import usable_cores

SAY_S = 5.0
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile")
_QUIET = re.compile(r" *(Requirement already|Looking in|Collecting|Processing|Using cached|Downloading|━)")
_INSTALLING = "Installing collected packages: "


class Progress:
    """What pip is at, by what it has said and what lies in ``site`` (where packages go)."""

    def __init__(self, site: Path) -> None:
        self.site = site
        self.collected = 0
        self.names: list[str] = []

    def read(self, line: str) -> bool:
        """Take a line of pip's; whether people should see it."""
        self.collected += line.startswith("Collecting ")
        if line.startswith(_INSTALLING):
            self.names = [_plain(name) for name in line.removeprefix(_INSTALLING).split(",")]
            return False
        return not _QUIET.match(line)

    def said(self) -> str:
        if not self.names:
            return f"Finding and fetching packages ({self.collected} so far)"
        there = {_plain(one.name.partition("-")[0]) for one in self.site.glob("*.dist-info")}
        left = [name for name in self.names if name not in there]
        now = f" ({left[0]} …)" if left else ""
        return f"Installing {len(self.names) - len(left)} of {len(self.names)} packages{now}"


def _plain(name: str) -> str:
    """As PyPI compares names."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


class Saying:
    """Says every ``every_s`` what ``said`` tells, until it is left."""

    def __init__(self, said: Callable[[], str], every_s: float = SAY_S) -> None:
        self._said, self._every_s, self._ended = said, every_s, Event()
        self._began = time.monotonic()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            print(f"  {self._said()}, {time.monotonic() - self._began:.0f} s", flush=True)


def install(command: Sequence[str], site: Path, every_s: float = SAY_S) -> int:
    """Run pip by this command, and say how far it is; its exit code."""
    progress = Progress(site)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as pip,
        Saying(progress.said, every_s),
    ):
        assert pip.stdout is not None
        for line in pip.stdout:
            if progress.read(line):
                print(line, end="", flush=True)
    return pip.returncode


def compile_all(site: Path, every_s: float = SAY_S, python: str | Path = sys.executable) -> None:
    """To bytecode of this Python, on all cores, as far as it can be: some packages ship files of others."""
    files = sum(1 for _ in site.rglob("*.py"))

    def said() -> str:
        return f"Compiling {sum(1 for _ in site.rglob('*.pyc'))} of {files} Python files"

    command = [str(python), "-m", "compileall", "-qq", "-j", str(usable_cores()), str(site)]
    with subprocess.Popen(command) as compiling, Saying(said, every_s):
        compiling.wait()


def main(given: Sequence[str]) -> int:
    site = Path(sysconfig.get_path("purelib"))
    before = set(site.glob("*.dist-info"))
    if code := install([*PIP, *given], site):
        print(f"pip failed (exit code {code}): the lines above say why.", file=sys.stderr, flush=True)
        return code
    if set(site.glob("*.dist-info")) != before:
        compile_all(site)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
