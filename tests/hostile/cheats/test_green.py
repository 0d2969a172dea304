"""Who changes the judge runs all that judges it, not only what ``make test`` has of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.cheats import __main__ as judging
from tests.hostile.cheats import green


@pytest.mark.parametrize("name", green.SUITES)
def test_the_suite_was_green_for_the_judge_as_it_is(name: str) -> None:
    row = green.recorded().get(name, {})
    assert row.get("digest") == green.digest(name), (
        f"what {name} depends on has changed since it was green ({row.get('day', 'never')}):"
        " run make test-cheats, and commit what it writes"
    )


def test_any_change_of_what_it_depends_on_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(green, "ROOT", tmp_path)
    monkeypatch.setitem(green.SUITES, "made up", green.Suite((), ("judge", "noise.py")))
    (tmp_path / "judge" / "deep").mkdir(parents=True)
    (tmp_path / "noise.py").write_text("NOISE = 1")
    (kernel := tmp_path / "judge" / "deep" / "kernel.c").write_text("int x;")
    seen = [green.digest("made up")]
    kernel.write_text("int y;")
    seen.append(green.digest("made up"))
    kernel.rename(tmp_path / "judge" / "kernel.c")
    seen.append(green.digest("made up"))
    (tmp_path / "elsewhere.py").write_text("")
    assert len(set(seen)) == 3
    assert green.digest("made up") == seen[-1], "and nothing else's"
    (tmp_path / "noise.py").unlink()
    with pytest.raises(FileNotFoundError):
        green.digest("made up")


def test_what_a_busy_host_left_undecided_is_asked_again_and_kept_for_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    told = iter([(0, ["b"])] * judging.TRIES + [(0, []), (1, ["b"])])
    monkeypatch.setattr(judging, "run", lambda tests: ran.append(tests) or next(told))
    monkeypatch.setattr(judging, "LEFT", tmp_path / "left")
    monkeypatch.setattr(green, "ROOT", tmp_path)
    monkeypatch.setattr(green, "GREEN", tmp_path / "green.json")
    (tmp_path / "judge.py").write_text("")
    monkeypatch.setitem(green.SUITES, "made up", green.Suite(("all",), ("judge.py",)))
    assert judging.main(["made up"]) == 1 and ran == [["all"], ["b"], ["b"]]
    assert not green.recorded()
    assert judging.main(["made up"]) == 0 and ran[judging.TRIES :] == [["b"]]
    assert green.recorded()["made up"]["digest"] == green.digest("made up")
    (tmp_path / "judge.py").write_text("changed")
    assert judging.main(["made up"]) == 1 and ran[-1] == ["all"]
    assert green.recorded()["made up"]["digest"] != green.digest("made up"), "a test has failed"


def test_who_was_skipped_for_a_busy_host_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = ["def test_a(): pass", "def test_b():\n    pytest.skip('a busy host told nothing')"]
    tests += ["def test_c():\n    pytest.skip('no GPU')"]
    (tmp_path / "test_suite.py").write_text("\n".join(["import pytest", *tests]))
    monkeypatch.setattr(judging, "ROOT", tmp_path)
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)  # there is no project of Django's
    assert judging.run(["test_suite.py"]) == (0, ["test_suite.py::test_b"])
