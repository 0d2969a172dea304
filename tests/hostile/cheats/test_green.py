"""Who changes the judge runs all that judges it, not only what ``make test`` has of it."""

from __future__ import annotations

from pathlib import Path

import pytest

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
