"""What the columns of the catalogue's own kind can do."""

from __future__ import annotations

from catalog.fields import numbers_in
from catalog.models import Setting


def test_the_numbers_of_a_list_are_counted_by_the_database(db: None) -> None:
    lists = ([], [1.5], [1, 2e-7, -3.0, 1e22])
    for number, numbers in enumerate(lists):
        Setting.objects.create(key=f"s{number}", threads=1, cache="warm", description=numbers)
    counted = Setting.objects.order_by("key").annotate(count=numbers_in("description"))
    assert list(counted.values_list("count", flat=True)) == [len(numbers) for numbers in lists]
