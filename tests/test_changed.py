"""What ``make test-changed`` chooses: who imports what has changed, and what the tables say of the rest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.changed import ASKING, DYNAMIC, FOLDERS, ROOT, Tree, changed_since


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree()


@pytest.mark.parametrize(
    ("changed", "chosen", "left"),
    [
        ("catalog/line_diff.py", "tests/catalog/test_line_diff.py", "tests/opatlas/test_errors.py"),
        ("tests/catalog/test_steps.py", "tests/catalog/test_steps.py", "tests/catalog/test_search.py"),
        # By a conftest.py above it, whose own imports count and not what is behind them.
        ("tests/dashboard/conftest.py", "tests/dashboard/run/test_stack.py", "tests/catalog/test_search.py"),
        # By a name that a module computes.
        (
            "opatlas/load/torch/ops/pooling.py", "tests/opatlas/load/test_torch_ops.py",
            "tests/dashboard/webhooks/test_guard.py",
        ),
        # By its name: it is run as a program.
        ("tests/forked.py", "tests/test_forked.py", "tests/catalog/test_search.py"),
        # By a client that asks for a page.
        ("dashboard/pages/urls.py", "tests/catalog/api/test_access.py", "tests/opatlas/plan/test_engines.py"),
        # By the view that names it, and by templates.
        ("templates/overview/_steps.html", "tests/dashboard/browser", "tests/opatlas/plan/test_engines.py"),
        ("docs/gpu.md", "tests/docs", "tests/catalog/test_search.py"),
        ("catalog/lookup/README.md", "tests/docs", "tests/catalog/test_search.py"),
    ],
)  # fmt: skip
def test_what_a_change_can_touch(tree: Tree, changed: str, chosen: str, left: str) -> None:
    tests = tree.touched([changed])
    assert chosen in tests
    assert left not in tests and (ROOT / left).exists()
    assert "tests/test_words.py" in tests  # always


def test_the_tables_name_what_is_there(tree: Tree) -> None:
    for importer, patterns in DYNAMIC.items():
        assert importer in tree.graph.modules
        assert all(tree.matching(tree.graph, [pattern]) for pattern in patterns), importer
    for patterns in ASKING.values():
        assert all("\\1" in pattern or tree.matching(tree.graph, [pattern]) for pattern in patterns), patterns
    for begins, tests in FOLDERS.items():
        assert list(ROOT.glob(f"{begins}*")), begins
        assert all((ROOT / test).exists() for test in tests), begins


def test_a_change_is_what_differs_from_a_revision_and_what_git_does_not_know(tmp_path: Path) -> None:
    def git(*command: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *own, *command], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for number, name in enumerate(("first", "second")):
        (tmp_path / name).write_text(str(number))
        git("add", ".")
        git("commit", "-m", name)
    (tmp_path / "first").write_text("anew")
    (tmp_path / "third").touch()
    assert changed_since("HEAD~1", tmp_path) == ["first", "second", "third"]
    assert changed_since("HEAD", tmp_path) == ["first", "third"]
