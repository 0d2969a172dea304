"""Installing says how far it is, and ends as pip does."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event

import pytest

from tuning.bare import installing
from tuning.bare.installing import Progress, Saying, compile_all, install, main

LINES = [
    "Looking in indexes: https://example.org/simple",
    "Collecting torch==2.13.0 (from -r requirements-worker.txt (line 3))",
    "  Using cached torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (190 MB)",
    "Requirement already satisfied: pip in ./lib",
    "Collecting drf_spectacular (from -r requirements.txt (line 5))",
    "  Downloading drf_spectacular-0.30.0-py3-none-any.whl (111 kB)",
]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "pip-26.0.dist-info").mkdir()
    return tmp_path


def test_what_is_fetched_is_counted_and_not_repeated(site: Path) -> None:
    progress = Progress(site)
    assert [progress.read(line) for line in LINES] == [False] * 6
    assert progress.said() == "Finding and fetching packages (2 so far)"


def test_what_is_installed_is_counted_by_what_is_there(site: Path) -> None:
    progress = Progress(site)
    progress.read("Installing collected packages: mpmath, drf-spectacular, torch")
    assert progress.said() == "Installing 0 of 3 packages (mpmath …)"
    (site / "mpmath-1.3.0.dist-info").mkdir()
    (site / "drf_spectacular-0.30.0.post1.dist-info").mkdir()
    assert progress.said() == "Installing 2 of 3 packages (torch …)"
    (site / "torch-2.13.0+cpu.dist-info").mkdir()
    assert progress.said() == "Installing 3 of 3 packages"


def test_pips_errors_and_its_exit_code_are_passed_on(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pip = """
import sys
print("Collecting nothing")
print("ERROR: No matching distribution found for nothing", file=sys.stderr)
print("WARNING: said on the other way")
sys.exit(3)
"""
    assert install([sys.executable, "-c", pip], site) == 3
    said = capfd.readouterr()
    assert said.err.strip() == "ERROR: No matching distribution found for nothing"
    assert said.out.strip() == "WARNING: said on the other way"


def test_the_command_fails_as_pip_does_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-index", "--no-deps", "no-such-package-of-opatlas"]) == 1
    said = capfd.readouterr().err
    assert "No matching distribution found for no-such-package-of-opatlas" in said
    assert "pip failed (exit code 1): the lines above say why." in said


def test_where_nothing_was_missing_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Path] = []
    monkeypatch.setattr(installing, "compile_all", compiled.append)
    assert main(["--no-index", "pip"]) == 0
    assert compiled == []
    monkeypatch.setattr(installing, "install", lambda command, site: 0)
    monkeypatch.setattr(installing.sysconfig, "get_path", lambda name: str(site))
    site = Growing()
    monkeypatch.setattr(installing, "Path", lambda path: site)
    assert main(["something"]) == 0
    assert compiled == [site]


class Growing:
    """A folder of packages that has one more at each look."""

    def __init__(self) -> None:
        self.there: list[Path] = []

    def glob(self, pattern: str) -> list[Path]:
        self.there.append(Path(f"package{len(self.there)}.dist-info"))
        return list(self.there)


def test_it_is_said_again_and_again_until_it_ends(capfd: pytest.CaptureFixture[str]) -> None:
    asked = []
    twice = Event()

    def said() -> str:
        asked.append(1)
        if len(asked) == 2:
            twice.set()
        return f"Installing {len(asked)} of 9 packages"

    with Saying(said, every_s=0.001):
        assert twice.wait(60)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("  Installing 1 of 9 packages, ") and lines[0].endswith(" s")
    assert len(lines) == len(asked)


def test_what_cannot_be_compiled_stands_in_nobodys_way(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "of_another_python.py"
    good.write_text("x = 1\n")
    bad.write_text("print 'x'\n")
    compile_all(tmp_path)
    assert [one.name.split(".")[0] for one in (tmp_path / "__pycache__").iterdir()] == ["good"]
