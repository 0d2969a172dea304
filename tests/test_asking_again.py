"""Tests that failed beside others are asked again alone, and who fails there has failed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import __main__ as whole
from tests.times import Times, ungrouped


def written(folder: Path, body: str) -> str:
    path = folder / "test_one.py"
    path.write_text(
        f"from pathlib import Path\nseen = Path({str(folder)!r}) / 'seen'\ndef test_it():\n{body}"
    )
    return f"{path}::test_it"


@pytest.mark.parametrize(
    ("body", "fails"),
    [
        ("    pass\n", False),
        ("    assert False\n", True),
        ("    assert not seen.exists()\n    seen.touch()\n", True),  # the second time
    ],
)
def test_who_fails_once_more_in_two_runs_has_failed(
    tmp_path: Path, body: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to load
    bare = ["-c", "/dev/null", "-p", "no:cacheprovider"]
    assert whole.fail_alone([written(tmp_path, body)], bare) == fails


@pytest.mark.parametrize(
    ("code", "failed", "again", "expected"),
    [
        (0, [], True, 0),
        (1, ["a"], False, 0),
        (1, ["a"], True, 1),
        (1, ["a"] * (whole.MOST_AGAIN + 1), False, 1),  # not the machine's
        (1, [], False, 1),  # who failed is not known
        (3, ["a"], False, 3),  # pytest itself
        (-9, [], False, -9),
    ],
)
def test_a_run_has_failed_unless_all_pass_alone(
    code: int, failed: list[str], again: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "run", lambda part, *_: code if part is whole.PARTS[0] else 0)
    monkeypatch.setattr(whole, "failed_in", lambda name: failed)
    monkeypatch.setattr(whole, "fail_alone", lambda names, more: again)
    assert whole.main([]) == expected


def test_names_are_without_the_groups_of_several_processes() -> None:
    assert ungrouped("tests/a.py::test_b[x@y]@browser") == "tests/a.py::test_b[x@y]"
    assert ungrouped("tests/a.py::test_b@postgres-0") == "tests/a.py::test_b"
    assert ungrouped("tests/a.py::test_b[x@y]") == "tests/a.py::test_b[x@y]"


def test_files_that_cannot_be_read_have_failed_too() -> None:
    """Processes of pytest-xdist report them and go on, and their run ends as one of failed tests does."""
    times = Times("")
    for name, failed in (("tests/a.py", True), ("tests/b.py", False), ("tests/a.py", True)):
        times.pytest_collectreport(SimpleNamespace(nodeid=name, failed=failed))
    times.pytest_runtest_logreport(
        SimpleNamespace(nodeid="tests/c.py::test_d@group", failed=True, duration=1.0, user_properties=[])
    )
    assert list(times.failed) == ["tests/a.py", "tests/c.py::test_d"]
