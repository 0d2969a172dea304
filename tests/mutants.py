"""``make mutants``: would the tests notice? mutmut changes the core, and each change must make a test fail.

A sample with a fixed seed, of each module alike, in a bounded time; everything happens in copies of the tree.
``python -m tests.mutants [PART OF A PATH …]`` looks at some modules only, ``MUTANTS_S=0`` at every mutant.
``--seed 1`` puts in one defect of each area (``mutants.toml``) instead: a test by day must fail for each.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SEED = 20261122
LEAST_CAUGHT = 0.9
AT_ONCE = 2
MUTANT_S = 2.0  # what a mutant takes on a busy machine: so many are sampled
NO_TEST = (5, 33)  # mutmut's own codes: no test reaches it

CORE = {
    "catalog/choosing.py": ["tests/catalog/test_choosing.py"],
    "tuning/queue/decide.py": ["tests/tuning/queue/test_decide.py"],
    "tuning/measure/timing/quiet.py": ["tests/tuning/measure/timing/test_quiet.py"],
    "tuning/measure/timing/stats.py": ["tests/tuning/measure/timing/test_stats.py"],
    "tuning/measure/judging/check.py": ["tests/tuning/measure/judging/test_check.py"],
    "tuning/measure/judging/tolerance.py": ["tests/tuning/measure/judging/test_check.py"],
    "opatlas/load/files.py": ["tests/opatlas/load/test_files.py"],
    "opatlas/identity/canonical.py": ["tests/opatlas/identity/test_canonical.py"],
    "dashboard/billing/pricing.py": ["tests/dashboard/billing/test_pricing.py"],
    "dashboard/webhooks/guard.py": ["tests/dashboard/webhooks/test_guard.py"],
    "tuning/queue/claims.py": ["tests/tuning/queue/test_claims.py", "tests/tenancy/test_scopes.py"],
    "catalog/best/publishing.py": [
        "tests/catalog/best/test_publishing.py",
        "tests/catalog/best/test_withdrawing.py",
        "tests/tenancy/test_scopes.py",
    ],
    "catalog/best/served.py": ["tests/catalog/lookup/test_lookups.py", "tests/tenancy/test_scopes.py"],
    "catalog/lookup/misses.py": [
        "tests/catalog/lookup/test_lookups.py",
        "tests/catalog/lookup/test_misses.py",
        "tests/tenancy/test_scopes.py",
    ],
    "catalog/lookup/lookups.py": [
        "tests/catalog/lookup/test_lookups.py",
        "tests/catalog/lookup/test_neighbours.py",
        "tests/catalog/api/test_along.py",
        "tests/catalog/api/test_revoking.py",
        "tests/catalog/usage/test_succession.py",
        "tests/dashboard/billing/test_repeating.py",
        "tests/dashboard/billing/test_withheld_api.py",
        "tests/catalog/usage/test_usage.py",
        "tests/tenancy/test_scopes.py",
    ],
}
"""Each module of the core, those with quick tests first, and the tests that concern it."""

SETTINGS = """[mutmut]
source_paths =
    opatlas
    catalog
    tuning
    dashboard
only_mutate =
    {module}
also_copy =
    templates
    manage.py
pytest_add_cli_args =
    --no-migrations
pytest_add_cli_args_test_selection =
    {tests}
use_git_change_detection = false
timeout_multiplier = 3
timeout_constant = 5
"""

NAMES = """
import sys
from pathlib import Path
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name
path = Path(sys.argv[1])
for name in mutate_file_contents(str(path), path.read_text()).mutant_names:
    print(get_mutant_name(path, name))
"""
DIFFS = """
import sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
for name in sys.argv[2:]:
    print(get_diff_for_mutant(name, path=sys.argv[1]), end="\\0")
"""


@dataclass(frozen=True)
class Examined:
    """One module. ``survivors`` are diffs; what the time did not suffice for is in ``left``."""

    module: str
    caught: int
    survivors: list[str]
    left: int
    trouble: str = ""

    @property
    def line(self) -> str:
        rest = f", {self.left} not reached" if self.left else ""
        return f"{self.module:34} {self.caught:4} caught, {len(self.survivors)} survived{rest}{self.trouble}"


class Time:
    """What is left of ``bound_s`` seconds is shared by the modules that are left; 0: there is no bound."""

    def __init__(self, bound_s: float, modules: int) -> None:
        self.sample = round(bound_s * AT_ONCE / modules / MUTANT_S) if bound_s else None
        self._until = time.monotonic() + bound_s if bound_s else None
        self._lock, self._modules = threading.Lock(), modules

    def share(self) -> Callable[[], float | None]:
        """The next module's: a function that says what is left of it."""
        if self._until is None:
            return lambda: None
        with self._lock:
            now = time.monotonic()
            left_s = max(0.0, self._until - now)
            until = now + min(left_s, left_s * AT_ONCE / self._modules)
            self._modules -= 1
        return lambda: max(1.0, until - time.monotonic())


def main() -> int:
    if sys.argv[1:2] == ["--seed"]:
        return put_in_defects(int(sys.argv[2]))
    wanted = sys.argv[1:] or [""]
    modules = [module for module in CORE if any(part in module for part in wanted)]
    time_left = Time(float(os.environ.get("MUTANTS_S", "600")), len(modules))
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="opatlas-mutants-") as folder,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        tree = _copied_tree(Path(folder) / "tree")  # once: who looks on may go on working
        for one in pool.map(lambda module: examine(module, tree, time_left), modules):
            found.append(one)
            print(one.line, *one.survivors, sep="\n", flush=True)
    caught, survived = sum(one.caught for one in found), sum(len(one.survivors) for one in found)
    share = caught / max(1, caught + survived)
    print(f"\n{caught} of {caught + survived} mutants caught ({share:.1%}; at least {LEAST_CAUGHT:.0%})")
    return int(share < LEAST_CAUGHT or any(one.trouble for one in found))


def examine(module: str, tree: Path, time_left: Time) -> Examined:
    """Sample a module's mutants and run the tests that reach them, in a copy of the tree."""
    left_s = time_left.share()
    with tempfile.TemporaryDirectory(prefix="opatlas-mutants-") as folder:
        shutil.copytree(tree, folder, dirs_exist_ok=True)
        settings = SETTINGS.format(module=module, tests="\n    ".join(CORE[module]))
        (Path(folder) / "setup.cfg").write_text(settings)
        names = sorted(_python(folder, "-c", NAMES, module).split())
        sample = random.Random(SEED).sample(names, min(time_left.sample or len(names), len(names)))
        said = _mutmut(folder, sample, left_s())
        codes = json.loads((Path(folder) / "mutants" / f"{module}.meta").read_text())["exit_code_by_key"]
        diffs = _python(folder, "-c", DIFFS, module, *sample).split("\0")
        changes = {
            name: change for name, diff in zip(sample, diffs, strict=False) if (change := _change(diff))
        }
        survivors = [name for name in changes if codes[name] in (0, *NO_TEST)]
        left = sum(codes[name] is None for name in changes)
        real = [changes[name] for name in survivors if not _is_equivalent(module, changes[name])]
        trouble = f"\n{said}" if left == len(changes) else ""
        return Examined(module, len(changes) - len(survivors) - left, real, left, trouble)


def put_in_defects(seed: int) -> int:
    """One of each area, drawn by the seed; how many no test notices."""
    by_area: dict[str, list[dict[str, Any]]] = {}
    for one in listed()["defect"]:
        by_area.setdefault(one["area"], []).append(one)
    missed, drawing = 0, random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="opatlas-mutants-") as folder:
        tree = _copied_tree(Path(folder) / "tree")
        for area, several in by_area.items():
            defect = drawing.choice(several)
            place = tree / defect["module"]
            text = place.read_text()
            place.write_text(with_defect(text, defect))
            command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not nightly"]
            done = subprocess.run(
                [sys.executable, *command, *defect["tests"]], cwd=tree, capture_output=True, text=True,
                env={**os.environ, "PYTHONPATH": str(tree)},
            )  # fmt: skip
            place.write_text(text)
            failed = re.findall("^(?:FAILED|ERROR) (.*)", done.stdout, re.MULTILINE)
            caught = done.returncode == 1 and failed  # whatever else ended it has proven nothing
            missed += not caught
            told = f"caught by {failed[0]}" if caught else f"NOT CAUGHT (code {done.returncode})"
            print(f"{area}: {defect['module']}: {defect['before'].strip()[:60]}: {told}", flush=True)
            if not caught:
                print(done.stdout[-2000:] + done.stderr[-2000:])
    print(f"{len(by_area) - missed} of {len(by_area)} defects caught (seed {seed})")
    return int(missed > 0)


def with_defect(text: str, defect: dict[str, Any]) -> str:
    """Raises ValueError where the module no longer has what is to be replaced, or has it twice."""
    if (count := text.count(defect["before"])) != 1:
        raise ValueError(f"{defect['module']} has {count} times: {defect['before']}")
    return text.replace(defect["before"], defect["after"])


def _copied_tree(to: Path) -> Path:
    """What git knows and does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def _python(folder: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def _mutmut(folder: str, names: list[str], limit_s: float | None) -> str:
    """Run mutmut on these, as long as there is time; what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *names],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    for patience_s, ending in ((limit_s, signal.SIGINT), (20, signal.SIGKILL), (None, signal.SIGKILL)):
        try:
            said = process.communicate(timeout=patience_s)[0]
            break
        except subprocess.TimeoutExpired:  # every result is written down as it comes
            os.killpg(process.pid, ending)
    return "\n".join([line for line in said.splitlines() if line.isascii() and line.strip()][-40:])


def _change(diff: str) -> str:
    """The lines that differ; empty where the case of letters does: each text is changed otherwise too."""
    lines = [line for line in diff.splitlines()[2:] if line.startswith(("-", "+"))]
    before, after = ("".join(line[1:] for line in lines if line[0] == sign).lower() for sign in "-+")
    return "" if before == after else "\n".join(f"    {line}" for line in lines)


def _is_equivalent(module: str, diff: str) -> bool:
    added = [line[5:].strip() for line in diff.splitlines() if line.startswith("    +")]
    return any(
        one["module"] == module and any(re.search(one["becomes"], line) for line in added)
        for one in listed()["equivalent"]
    )


def listed() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())


if __name__ == "__main__":
    sys.exit(main())
