"""What `make mutants` changes is there to be changed, and tests to notice it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.mutants import CORE, ROOT, SETTINGS, _python, listed, with_defect

MUTATED = """
import sys
from pathlib import Path
from mutmut.mutation.file_mutation import mutate_file_contents
path = Path(sys.argv[1])
print(mutate_file_contents(str(path), path.read_text()).code)
"""
AREAS = {"choosing", "claims", "publishing", "served", "judging", "the front", "prices", "plans"}


def test_every_module_and_its_tests_are_there() -> None:
    named = [*CORE, *(one for tests in CORE.values() for one in tests)]
    named += [name for one in listed()["defect"] for name in (one["module"], *one["tests"])]
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert {one["module"] for one in listed()["equivalent"]} <= CORE.keys()


def test_every_defect_can_be_put_in() -> None:
    for defect in listed()["defect"]:
        text = (ROOT / defect["module"]).read_text()
        assert ast.dump(ast.parse(with_defect(text, defect))) != ast.dump(ast.parse(text)), defect
    assert {one["area"] for one in listed()["defect"]} == AREAS


def test_what_is_no_longer_there_is_said() -> None:
    with pytest.raises(ValueError, match="has 0 times: gone"):
        with_defect("text", {"module": "a.py", "before": "gone", "after": ""})


@pytest.mark.nightly
@pytest.mark.parametrize("module", sorted({one["module"] for one in listed()["equivalent"]}))
def test_each_pattern_is_of_a_mutant_that_there_is(module: str, tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text(SETTINGS.format(module=module, tests=""))
    lines = [line.strip() for line in _python(str(tmp_path), "-c", MUTATED, str(ROOT / module)).splitlines()]
    for one in listed()["equivalent"]:
        if one["module"] == module:
            assert any(re.search(one["becomes"], line) for line in lines), one["becomes"]
