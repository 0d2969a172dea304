"""The table that ships is what the frameworks do: a sample each day, all of it each night."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from opatlas.client.machine import installed_versions
from opatlas.plan.semantics.table import EVERY, PATH, KnownDifference, SemanticsTable, known_table
from tests.installed import needs
from tests.opatlas.plan.semantics.made import (
    LIBRARIES,
    PAGE,
    TRIED,
    row_of,
    table_of,
    with_other_processors,
    written,
)
from tests.opatlas.plan.semantics.page import KINDS, page
from tests.opatlas.plan.semantics.probes import (
    Probe,
    after_a_product,
    binary,
    casts,
    pooling,
    probes,
    reducing,
    unary,
)

needs("openvino", "torch", "jax")

SAMPLE = {
    ("Relu", "float32"), ("Sign", "float32"), ("Exp", "float32"), ("Abs", "int8"), ("Add", "uint8"),
    ("Mul", "int64"), ("Max", "float32"), ("Less", "int64"), ("Cast", "float32>int64"),
    ("Cast", "int64>bool"),
    ("ReduceMin", "float32"), ("AveragePool", "float32"),
}  # fmt: skip
"""Of what frameworks are known to differ in; by type."""


def of_sample() -> list[Probe]:
    families = (unary, after_a_product, binary, casts, reducing, pooling)
    return [one for family in families for one in family() if (one.op_type, one.element) in SAMPLE]


def rows(differences: Iterable[KnownDifference], frameworks: Collection[str]) -> set[tuple[object, ...]]:
    return {row_of(one) for one in differences if one.framework in frameworks and one.op_type != EVERY}


def of_types(table: SemanticsTable, given: Iterable[Probe]) -> list[KnownDifference]:
    known = {(one.op_type, one.element) for one in given}
    return [one for one in table.differences if (one.op_type, one.element) in known]


def test_it_was_made_with_what_is_installed() -> None:
    installed = installed_versions(LIBRARIES)
    assert dict(known_table().versions) == installed, (
        "The table was made with other versions: run python -m tests.opatlas.plan.semantics.made"
    )


@pytest.mark.parametrize("framework", ["openvino", "pytorch", "xla"])
def test_a_sample_is_as_the_table_says(framework: str) -> None:
    given = of_sample()
    found = table_of(given, [framework])
    assert rows(found.differences, {framework}) == rows(of_types(known_table(), given), {framework})


def test_rows_of_other_processors_stay_while_the_versions_do() -> None:
    def table(version: str, *ops: str) -> SemanticsTable:
        rows = [KnownDifference("xla", op, "float32", "nan", "drops NaN", version, {}) for op in ops]
        return SemanticsTable({"jax": version}, {"xla": {op: ["float32"] for op in ops}}, rows)

    both = with_other_processors(table("1", "Abs", "Exp"), table("1", "Exp", "Sign"))
    assert [one.op_type for one in both.differences] == ["Abs", "Exp", "Sign"] == sorted(both.tried["xla"])
    assert with_other_processors(table("2", "Abs"), table("1", "Exp")) == table("2", "Abs")


@pytest.mark.nightly
@pytest.mark.parametrize("framework", ["openvino", "pytorch", "xla"])
def test_all_of_it_is_as_the_table_says(framework: str) -> None:
    found = table_of(list(probes()), [framework])
    here, known = rows(found.differences, {framework}), rows(known_table().differences, {framework})
    assert here <= known
    assert len(here) > 0.9 * len(known), "few rows are another processor's"


@pytest.mark.nightly
def test_torch_compile_differs_where_the_table_says() -> None:
    """It compiles for minutes: the sample alone, of which the table need not have every attribute."""
    given, framework = of_sample(), {"torch.compile"}
    found = table_of(given, ["torch.compile"])
    known = rows(of_types(known_table(), given), framework)
    assert known and known <= rows(found.differences, framework)


def test_it_is_kept_as_it_is_written() -> None:
    assert written(known_table()) == PATH.read_text()


def test_its_page_is_made_of_it() -> None:
    assert page(known_table()) == PAGE.read_text(), "Run python -m tests.opatlas.plan.semantics.made"


def test_its_page_counts_every_kind_of_difference() -> None:
    assert {one.why for one in known_table().differences} == set(KINDS)


def test_every_framework_that_a_session_tries_is_in_it() -> None:
    assert set(known_table().tried) == set(TRIED)


def test_an_unknown_operator_has_what_most_have_in_common() -> None:
    table = known_table()
    assert (
        table.of("openvino", "com.microsoft.Anything", "int64") == table.of("openvino", EVERY, "int64") != ()
    )
