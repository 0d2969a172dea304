"""THIRD_PARTY.md names everything that others wrote, with the licence that it says it has."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.databases import ROOT
from tests.distribution.licences import REQUIREMENTS, families, stated, wanted

NOTICES = (ROOT / "THIRD_PARTY.md").read_text()
INSTALLED = wanted(REQUIREMENTS)


def listed() -> dict[str, tuple[str, str]]:
    """Package → (licence, who first needs it), from the table of installed packages."""
    rows = re.findall(r"^\| (\S+) \| ([^|]+) \| (web|worker|tests) \|$", NOTICES, re.MULTILINE)
    return {name: (licence, needed) for name, licence, needed in rows}


def test_installed_packages_are_listed_with_their_own_licences() -> None:
    rows, wrong = listed(), []
    for name, distribution in sorted(INSTALLED.items()):
        statement, is_spdx = stated(distribution)
        licence, _ = rows.get(name, ("no row", ""))
        agree = licence == statement if is_spdx else families(licence) == families(statement) != set()
        if not agree:
            wrong.append(f"{name}: THIRD_PARTY.md has {licence!r}, it says of itself {statement[:200]!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("needed", "files"),
    [("web", ["requirements.txt"]), ("worker", ["requirements.txt", "requirements-worker.txt"])],
)
def test_who_first_needs_a_package(needed: str, files: list[str]) -> None:
    ranks = {"web": 0, "worker": 1, "tests": 2}
    there = {name for name, (_, who) in listed().items() if ranks[who] <= ranks[needed]}
    assert there & set(INSTALLED) == set(wanted([ROOT / file for file in files]))


def test_requirements_of_requirements_and_of_extras_count() -> None:
    assert {"vine", "psycopg-binary", "mpmath"} <= set(INSTALLED)  # of celery, psycopg[binary], torch's sympy


def test_what_only_tests_need_may_be_copyleft_and_nothing_else() -> None:
    for name, (licence, needed) in listed().items():
        assert "GPL" not in families(licence) or needed == "tests", name


def test_files_of_others_in_the_repository_are_named() -> None:
    static = ROOT / "dashboard" / "static"
    for path in sorted(path for path in static.rglob("*") if path.is_file()):
        text = path.read_bytes()[:3000].decode(errors="replace")
        if path.suffix == ".woff2":
            assert str(path.relative_to(ROOT)) in NOTICES
            assert (path.parent / f"{path.stem}-LICENSE.txt").exists()
        elif not path.name.endswith("-LICENSE.txt"):
            assert not re.search(r"copyright|@license|\(c\)", text, re.IGNORECASE), f"whose is {path}?"
    for path in [*(ROOT / "bench/data").iterdir(), *(ROOT / "tests/data").glob("*_calls.json")]:
        assert f"`{path.relative_to(ROOT)}`" in NOTICES


def test_what_browsers_get_from_packages_is_named() -> None:
    templates = "\n".join(path.read_text() for path in (ROOT / "templates").rglob("*.html"))
    scripts = re.findall(r"""\{% static ['"]([^'"]+\.js)['"] %\}""", templates)
    assert len(scripts) > 5
    for script in scripts:
        if not (ROOT / "dashboard" / "static" / script).exists():
            assert f"`{script.rpartition('/')[2]}`" in NOTICES, f"whose is {script}?"


def test_the_licence_is_apaches_and_the_package_says_so() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text[:200]
    assert "END OF TERMS AND CONDITIONS" in text
