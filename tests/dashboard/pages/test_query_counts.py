"""No page makes a query per row: every page of the resolver, at two sizes of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from django.test import Client

from tests import by_day
from tests.dashboard.examples import page_paths
from tests.dashboard.factory import full_catalogue
from tests.dashboard.kernels import gallery
from tests.dashboard.statements import statements_of

MOST = 30
"""Statements that one page may take, its session's and user's included."""
HEAVY = {"overview": 35, "operator": 33, "model": 14}
"""As many as these pages take, with what follows a dash in their names."""

NOT_PAGES = frozenset({"healthz", "readyz"})
"""For probes: whether they answer 200 is up to the machine."""


def counts(client: Client) -> dict[str, int]:
    paths = {name: path for name, path in page_paths().items() if name not in NOT_PAGES}
    found = {name: statements_of(client, path) for name, path in paths.items()}
    return {name: count for name, count in found.items() if count is not None}


def counts_again(client: Client, before: Mapping[str, int]) -> dict[str, int]:
    """Of pages that were opened before; what seems to ask more is opened once more: what it had kept may have
    been too old."""
    found = {}
    for name, path in page_paths().items():
        if name in before:
            count = statements_of(client, path, again=True)
            found[name] = (
                count if count is not None and count <= before[name] else statements_of(client, path)
            )
    return found


def test_queries_do_not_grow_with_the_rows_and_stay_few(pages: Client) -> None:
    gallery(full_catalogue(hours=6))
    grow(8)  # so that every kind of row is there beside another of its kind
    small = counts(pages)
    for seed in (9, 10, 11):
        grow(seed)
    large = counts_again(pages, small)
    assert set(small) == set(large) and len(small) >= 20
    grown = {name: (small[name], large[name]) for name in small if large[name] > small[name]}
    assert not grown, f"queries that grow with the rows: {grown}"
    many = {name: count for name, count in large.items() if count > HEAVY.get(name.partition("-")[0], MOST)}
    assert not many, f"more than {MOST} queries, or {HEAVY}: {many}"


def grow(seed: int) -> None:
    """As much again, beside what is there."""
    full_catalogue(seed=seed, hours=6, mark=f" {seed}")


@pytest.mark.parametrize("form", by_day.first(1, ["csv", "json"]))
def test_exports_take_no_query_per_row_either(pages: Client, form: str) -> None:
    paths = [path for path in page_paths().values() if "{" not in path]
    gallery(full_catalogue(hours=6))
    small = {
        path: statements_of(pages, f"{path}?export={form}", again=form == "csv")
        for path in exporting(pages, paths)
    }
    grow(8)
    large = {path: statements_of(pages, f"{path}?export={form}", again=True) for path in small}
    assert large == small


def exporting(client: Client, paths: list[str]) -> list[str]:
    """The pages that export."""
    return [
        path
        for path in paths
        if client.get(f"{path}?export=csv").headers.get("Content-Type", "").startswith("text/csv")
    ]
