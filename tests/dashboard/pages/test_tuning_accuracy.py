"""The explorations page tells what tuning was expected to gain, and what it gained."""

from __future__ import annotations

from django.test import Client

from catalog.viewing import Viewer
from tests.dashboard.factory import Factory
from tuning.explore.slice_history import tuning_accuracy
from tuning.models import Exploration, TuningSlice


def test_expected_is_shown_against_gained(pages: Client, reader: Client, catalogue: Factory) -> None:
    assert "expected against gained" not in pages.get("/explorations/").content.decode()
    rows = list(Exploration.objects.filter(scope="shared").select_related("operator")[:12])
    TuningSlice.objects.bulk_create(
        TuningSlice(
            exploration=row, route="tvm", family="x", expected_gain=0.1 + n / 100, gained=n / 50, seconds=9
        )
        for n, row in enumerate(rows)
    )  # fmt: skip
    for somebody in (pages, reader):
        page = somebody.get("/explorations/").content.decode()
        assert "Tuning: expected against gained" in page
        assert rows[0].operator.op_type in page
        assert 'data-chart="tuning"' in page
        assert "1.00" in page, "the ranks agree"
    assert (
        "expected against" not in pages.get("/explorations/", headers={"HX-Request": "true"}).content.decode()
    )


def test_private_slices_are_counted_for_administrators_only(
    pages: Client, reader: Client, catalogue: Factory
) -> None:
    row = Exploration.objects.filter(scope="shared").first()
    assert row is not None
    Exploration.objects.filter(pk=row.pk).update(scope="org:1")
    TuningSlice.objects.create(
        exploration=row, route="tvm", family="x", expected_gain=0.1, gained=0.2, seconds=9
    )
    assert "expected against gained" in pages.get("/explorations/").content.decode()
    assert "expected against gained" not in reader.get("/explorations/").content.decode()


def test_only_slices_that_may_be_seen_are_judged(catalogue: Factory) -> None:
    """The host sees all, a tenant what is shared and its own."""
    rows = list(Exploration.objects.filter(scope="shared")[:3])
    for row, scope, gained in zip(rows, ("shared", "org:1", "org:2"), (0.1, 0.2, 0.3), strict=True):
        Exploration.objects.filter(pk=row.pk).update(scope=scope)
        TuningSlice.objects.create(
            exploration=row, route="tvm", family="x", expected_gain=0.5, gained=gained, seconds=9
        )
    everything, tenant = Viewer(everywhere=frozenset()), Viewer(roles={1: frozenset()}, focus=1)
    found = [tuning_accuracy(viewer.shown("exploration__")).pairs for viewer in (everything, tenant)]
    assert found == [[(0.5, 0.3), (0.5, 0.2), (0.5, 0.1)], [(0.5, 0.2), (0.5, 0.1)]]
