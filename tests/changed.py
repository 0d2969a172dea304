"""``make test-changed``: the tests that a change can touch, and only those: for hands, CI runs all of them.

``SINCE=rev``: what has changed since that revision; without, since the last commit, and what that changed.
Further arguments are pytest's. What a module imports, wherever it does, is read by grimp; what no import says
is in three tables below. They may miss something: ``make test`` does not.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import grimp

from tests.__main__ import BY_DAY, FORKED

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("opatlas", "catalog", "tuning", "dashboard", "tests", "bench")
DYNAMIC = {
    "opatlas.load.loader": ("opatlas.load.**",),
    "opatlas.load.package": ("opatlas.load.**",),
    "opatlas.load.recipe": ("opatlas.load.**",),
    "opatlas.load.torch.graph": ("opatlas.load.torch.ops.**",),
    "opatlas.load.xla.lower": ("opatlas.load.xla.**",),
    "opatlas.plan.regions": ("opatlas.plan.regions.**",),
    "tuning.celery": ("tuning.tasks", "tuning.worker.celery_signals"),
    "tuning.measure.sandbox.child": ("tuning.measure.**",),
    "tuning.measure.sandbox.zygote_main": ("tuning.measure.**",),
    "tuning.routes.compiler.triton.compile": ("tuning.routes.compiler.triton.kernels.**",),
    "tuning.routes.compiler.tvm.patches": ("tuning.routes.compiler.tvm.**",),
    "dashboard.urls": (
        "dashboard.rest", "dashboard.pages.urls", "dashboard.project.**", "dashboard.operation.**",
    ),
    "dashboard.wsgi": ("dashboard.urls",),
}  # fmt: skip
"""Modules that import others by a name that they compute, or that a string of the settings has."""
ASKING = {
    r"def \w+\([^)]*\b(api|api_with|client|page|browser)\b": ("dashboard.urls",),
    r"\bClient\(": ("dashboard.urls",),
    r"import .*\bStack\b|\"manage\.py\"|\bwhat_make_runs\b|tests\.tuning\.live\b": (
        "dashboard.wsgi",
        "tuning.celery",
    ),
    r"\bcall_command\(\W*(\w+)": (r"**.management.commands.\1",),
    r"[Cc]harg|[Bb]illing|[Pp]rice": ("dashboard.billing.charging",),
    r"catalog\.search\b": ("tuning.routes.registry",),
    r"\b(knowledge|TEACHERS|found_wrong)\b": ("tuning.kernels.caught", "tuning.kernels.services"),
}
"""What in a test's file stands for modules which it does not import."""
FOLDERS = {
    "docs/": ("tests/docs",),
    "docs/pages/": ("tests/dashboard/pages/test_pictured.py",),
    "CHANGELOG.md": ("tests/compatibility/test_openapi.py",),
    "Makefile": ("tests/docs/test_commands.py",),
    "templates/": ("tests/dashboard/browser", "tests/docs/test_blocks.py"),
    "dashboard/static/": ("tests/dashboard/browser",),
    "deploy/": ("tests/deploy",),
    "pyproject.toml": ("tests/distribution",),
    "requirements": ("tests/distribution",),
    "THIRD_PARTY.md": ("tests/distribution",),
    ".ci/": ("tests/docs/test_commands.py",),
    "tests/mutants.toml": ("tests/test_words.py",),
    "mkdocs.yml": ("tests/docs/test_site.py",),
}
"""Tests of what is not Python, by how its path begins; modules and templates that name a file are found."""
ALWAYS = ("tests/test_words.py",)  # it reads every file


class Tree:
    def __init__(self, root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> None:
        self.root, self.packages = root, packages
        self.direct: dict[str, set[str]] = {}

    @cached_property
    def graph(self) -> grimp.ImportGraph:
        graph = grimp.build_graph(*self.packages, cache_dir=str(self.root / "var" / "imports"))
        for importer, patterns in DYNAMIC.items():
            if importer in graph.modules:
                for imported in self.matching(graph, patterns) - {importer}:
                    graph.add_import(importer=importer, imported=imported)
        # Fixtures that most tests do not ask for: of a conftest.py only what itself imports counts.
        for module in [one for one in graph.modules if one.endswith(".conftest")] + ["tests.services"]:
            self.direct[module] = (
                graph.find_modules_directly_imported_by(module) if module in graph.modules else set()
            )
            for imported in self.direct[module]:
                graph.remove_import(importer=module, imported=imported)
        return graph

    @staticmethod
    def matching(graph: grimp.ImportGraph, patterns: Iterable[str]) -> set[str]:
        return {one for pattern in patterns for one in graph.find_matching_modules(pattern)}

    @cached_property
    def tests(self) -> dict[str, set[str]]:
        """What each test's file comes to when it runs, by its path."""
        graph, found = self.graph, dict[str, set[str]]()
        for path in sorted((self.root / "tests").rglob("test_*.py")):
            beside = [
                folder / "conftest.py"
                for folder in path.relative_to(self.root).parents
                if (self.root / folder / "conftest.py").exists()
            ]
            own = {module_of(str(one)) for one in (path.relative_to(self.root), *beside)}
            text = path.read_text()
            for words, patterns in ASKING.items():
                said = {match.expand(one) for match in re.finditer(words, text) for one in patterns}
                own |= self.matching(graph, said)
            reached = own.union(*(graph.find_upstream_modules(one) for one in own if one in graph.modules))
            for one in own - {"tests.conftest"}:
                reached |= self.direct.get(one, set())
            found[str(path.relative_to(self.root))] = reached
        return found

    def touched(self, changed: Iterable[str]) -> list[str]:
        """The files and folders of tests that a change of these paths can touch."""
        modules, chosen, queue, seen = set[str](), set(ALWAYS), list(changed), set[str]()
        while queue:
            path = queue.pop()
            if path in seen:
                continue
            seen.add(path)
            if path.endswith(".py"):
                modules.add(module_of(path))
            if path.endswith(".md"):
                chosen.add("tests/docs")
            for begins, tests in FOLDERS.items():
                if path.startswith(begins):
                    chosen.update(tests)
            if not path.endswith((".py", ".md", ".toml", ".txt")):
                queue += self.naming(path)
        # A test of the same name may run it as a program.
        names = {f"test_{module.rpartition('.')[2]}.py" for module in modules}
        chosen.update(
            test for test, reached in self.tests.items() if reached & modules or Path(test).name in names
        )
        within = {one for one in chosen for other in chosen if one.startswith(f"{other}/")}
        return sorted(one for one in chosen - within if (self.root / one).exists())

    def naming(self, path: str) -> list[str]:
        """Modules and templates in which a file is named, as Django's templates are: below their folder."""
        name = path.removeprefix("templates/") if path.startswith("templates/") else Path(path).name
        places = [one for one in (*self.packages, "templates") if (self.root / one).exists()]
        done = subprocess.run(
            ["git", "grep", "-lF", "-e", name, "--", *places], cwd=self.root, capture_output=True, text=True
        )
        return done.stdout.splitlines()


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def changed_since(revision: str, root: Path = ROOT) -> list[str]:
    """Paths that differ from a revision's, with those that git does not know yet."""

    def lines(*command: str) -> list[str]:
        done = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    there = lines("ls-files", "--others", "--exclude-standard")
    return sorted({*lines("diff", "--name-only", revision), *there})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make test-changed", description=__doc__)
    parser.add_argument("--since", default="HEAD~1", help="a revision")
    parser.add_argument("--only-name", action="store_true", help="name the tests, run none")
    options, more = parser.parse_known_args(arguments)
    changed = changed_since(options.since)
    tests = Tree().touched(changed)
    print(
        f"{len(changed)} files have changed since {options.since}: {len(tests)} files and folders of tests."
    )
    print("\n".join(tests), flush=True)
    if options.only_name:
        return 0
    return subprocess.run(
        [sys.executable, "-m", "pytest", *FORKED, *BY_DAY, *more, *tests], cwd=ROOT
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
