"""Which targets differ in size alone, and which of them is the nearest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opatlas.identity import Setting, default_setting
from opatlas.identity.place.neighbours import nearest_first, settings_there, sizes_that_differ
from tests.catalog.making import GPU, TARGET

CACHES = dict(TARGET.cache_bytes)


def test_what_differs_in_cores_and_caches_alone_says_in_which():
    other = replace(TARGET, cores=8, cache_bytes=(("l1d", 49152), ("l3", 1 << 25)))
    assert sizes_that_differ(TARGET, other) == {
        "cores": (4, 8),
        "cache_bytes.l2": (1048576, None),
        "cache_bytes.l3": (None, 1 << 25),
    }
    assert sizes_that_differ(TARGET, replace(TARGET, cores=2)) == {"cores": (4, 2)}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"features": ("avx2",)},
        {"features": ("avx2", "avx512f", "fma")},
        {"arch": "zen4"},
        {"vendor": "GenuineIntel"},
        {"isa": "aarch64"},
    ],
)
@pytest.mark.parametrize("cores", [4, 8])
def test_in_anything_else_or_in_nothing_they_are_no_neighbours(change, cores):
    if change or cores == 4:
        assert sizes_that_differ(TARGET, replace(TARGET, cores=cores, **change)) is None


def test_devices_are_no_neighbours():
    assert sizes_that_differ(GPU, replace(GPU, multiprocessors=114)) is None
    assert sizes_that_differ(GPU, replace(GPU, cache_bytes=(("l2", 1 << 20),))) is None


def test_the_closest_comes_first_whatever_the_order():
    sizes = {name: replace(TARGET, cores=number) for name, number in (("half", 2), ("four", 16), ("one", 1))}
    bare = replace(TARGET, cache_bytes=())
    cached = replace(TARGET, cache_bytes=tuple((CACHES | {"l2": 1 << 19}).items()))
    known = [sizes["four"], bare, sizes["one"], cached, replace(TARGET, arch="zen4"), TARGET, sizes["half"]]
    found = nearest_first(TARGET, known)
    assert set(found[:2]) == {sizes["half"], cached} and found[-1] == bare
    assert set(found[2:4]) == {sizes["one"], sizes["four"]}
    assert nearest_first(TARGET, reversed(known)) == found, "of two as close, by their keys"


def test_a_default_setting_is_another_machines_own_default():
    here, there = default_setting(TARGET), replace(TARGET, cores=8)
    assert settings_there(TARGET, here, there) == [here, Setting(threads=8)]
    assert settings_there(TARGET, here, replace(TARGET, cache_bytes=())) == [here]
    for other in (Setting(threads=2), Setting(threads=4, cache="cold"), Setting(threads=4, fast_math=True)):
        assert settings_there(TARGET, other, there) == [other]
