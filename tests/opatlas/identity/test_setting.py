"""Settings: what a time holds for beside the hardware."""

from typing import Any

import pytest

from opatlas.errors import InvalidTarget
from opatlas.identity import Setting, Target, check_setting, default_setting
from opatlas.identity.place.kinds import CPU, CUDA, DeviceKind
from tests.catalog.making import GPU

TWO_CORES = Target("cpu", "zen3", "AuthenticAMD", "x86_64", ("avx2",), (("l2", 524288),), 2)


def test_the_default_uses_all_cores_warm_and_strict() -> None:
    assert default_setting(TWO_CORES) == Setting(2, "warm", "float32", tf32=False, fast_math=False)
    assert default_setting(GPU) == Setting(1)
    assert Setting.from_json({}) == Setting()
    for setting in (default_setting(TWO_CORES), Setting(graphs=True)):
        assert Setting.from_json(setting.to_json()) == setting


def test_a_field_that_came_later_changes_no_older_key() -> None:
    assert Setting(2).key == "s1:18754a9f69cba4e65105b514aff4d5fac2de8826bbe89cc86b404ac3b89b7123"
    assert "graphs" not in Setting(2).to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"threads": 1},
        {"cache": "cold"},
        {"accumulate": "float16"},
        {"tf32": True},
        {"fast_math": True},
        {"graphs": True},
    ],
)
def test_every_field_is_part_of_the_key(change: dict[str, Any]) -> None:
    assert Setting.from_json({"threads": 2, **change}).key != Setting.from_json({"threads": 2}).key


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (3, "must be a JSON object"),
        ({"thread": 2}, "no field 'thread'; known are: threads"),
        ({"threads": 0}, "from 1 to 4096"),
        ({"threads": True}, "from 1 to 4096"),
        ({"threads": 1e3}, "from 1 to 4096"),
        ({"cache": "hot"}, "'warm' or 'cold'"),
        ({"cache": []}, "'warm' or 'cold'"),
        ({"accumulate": "int8"}, "one of float16"),
        ({"tf32": 1}, "tf32 must be true or false"),
        ({"fast_math": None}, "fast_math must be true or false"),
        ({"graphs": "yes"}, "graphs must be true or false"),
    ],
)
def test_bad_settings_are_refused(document: Any, sentence: str) -> None:
    with pytest.raises(InvalidTarget, match=sentence):
        Setting.from_json(document)


@pytest.mark.parametrize(
    ("setting", "target", "sentence", "where"),
    [
        (Setting(threads=3), TWO_CORES, "has 2 cores: ask for 1 to 2 threads", "setting.threads"),
        (Setting(graphs=True), TWO_CORES, "kind cpu has no graphs", "setting.graphs"),
        (Setting(threads=2), GPU, "kind cuda has no threads to choose", "setting.threads"),
    ],
)
def test_what_the_target_cannot_offer_is_refused(
    setting: Setting, target: Target, sentence: str, where: str
) -> None:
    with pytest.raises(InvalidTarget, match=sentence) as refused:
        check_setting(setting, target)
    assert refused.value.where == where


def test_what_the_target_offers_is_taken() -> None:
    check_setting(Setting(threads=2), TWO_CORES)
    check_setting(Setting(threads=1, graphs=True, tf32=True), GPU)


@pytest.mark.parametrize(
    ("setting", "kind", "words"),
    [
        (Setting(threads=2), CPU, "2 threads, warm cache"),
        (Setting(threads=1, cache="cold"), CPU, "1 thread, cold cache"),
        (Setting(accumulate="float16"), CUDA, "warm cache, sums in float16"),
        (Setting(tf32=True, graphs=True), CUDA, "warm cache, TF32, CUDA graphs"),
    ],
)
def test_settings_that_differ_are_told_apart_in_words(setting: Setting, kind: DeviceKind, words: str) -> None:
    assert setting.words(kind) == words
