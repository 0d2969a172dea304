"""One word means one thing: no two classes of a name, and PURE is what a contract holds to be."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("opatlas", "catalog", "tuning", "dashboard", "bench")

SHARED_NAMES = {
    "Command": "Django finds a management command by it",
    "Meta": "Django and REST framework read a class's options from it",
    "Operator": "the row and the value of the same thing",
    "Setting": "the row and the value of the same thing",
    "Target": "the row and the value of the same thing",
}


def sources() -> list[Path]:
    return [
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "migrations" not in path.parts
    ]


def test_no_two_classes_have_one_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sources():
        for name in re.findall(r"^ *class (\w+)[(:]", path.read_text(), re.MULTILINE):
            found[name].append(str(path.relative_to(ROOT)))
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert twice.keys() == SHARED_NAMES.keys(), {
        name: places for name, places in twice.items() if name not in SHARED_NAMES
    }


def test_what_calls_itself_pure_is_under_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [one for one in contracts if "PURE" in one["name"]]
    listed = set(contract["source_modules"])
    pure = [path for path in sources() if path.parts[len(ROOT.parts)] != "bench" and _is_pure(path)]
    assert len(pure) > 10
    for path in pure:
        parts = path.relative_to(ROOT).with_suffix("").parts
        above = {".".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
        assert above & listed, f"{'.'.join(parts)} calls itself PURE: put it into pyproject's contract"


def _is_pure(path: Path) -> bool:
    text = path.read_text()
    return "PURE" in text and "PURE" in (ast.get_docstring(ast.parse(text)) or "")
