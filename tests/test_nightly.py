"""``make test-all`` goes on where it was cut off, and no test is in no part or in two."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import nightly


def test_each_file_has_one_part_and_each_part_has_files() -> None:
    files = [path for part in nightly.PARTS for path in nightly.files_of(part)]
    assert sorted(files) == nightly._files()
    assert all(nightly.files_of(part) for part in nightly.PARTS)


def test_green_parts_are_not_run_again_until_the_tree_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, red, tree = list[str](), {"graph"}, ["a tree"]
    monkeypatch.setattr(nightly, "STATE", tmp_path / "var" / "nightly.json")
    monkeypatch.setattr(nightly, "state_of_tree", lambda: tree[0])
    monkeypatch.setattr(nightly, "run", lambda part, more: ran.append(part) or int(part in red))
    assert nightly.main([]) == 1
    assert ran == list(nightly.PARTS)
    assert "left: graph ===" in capsys.readouterr().out
    ran.clear()
    red.clear()
    assert nightly.main(["rest"]) == 0 and nightly.main([]) == 0 and nightly.main([]) == 0
    assert ran == ["rest", "graph"]
    assert "left: none ===" in capsys.readouterr().out
    ran.clear()
    tree[0] = "another tree"
    assert nightly.main([]) == 0
    assert ran == list(nightly.PARTS)


def test_a_state_of_the_tree_is_its_commit_and_what_is_not_committed(tmp_path: Path) -> None:
    def git(*command: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *own, *command], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    states = [nightly.state_of_tree(tmp_path)]
    for name, text in (("file", "2"), ("new", ""), ("new", "3")):
        (tmp_path / name).write_text(text)
        states.append(nightly.state_of_tree(tmp_path))
    assert len(set(states)) == 4
    (tmp_path / "new").unlink()
    (tmp_path / "file").write_text("1")
    assert nightly.state_of_tree(tmp_path) == states[0]
