"""Settings: what a time holds for beside the hardware."""

from typing import Any

import pytest

from opatlas.errors import InvalidTarget
from opatlas.identity import Setting, Target, check_setting, default_setting

TWO_CORES = Target("cpu", "zen3", "AuthenticAMD", "x86_64", ("avx2",), (("l2", 524288),), 2)


def test_the_default_uses_all_cores_warm_and_strict() -> None:
    assert default_setting(2) == Setting(2, "warm", "float32", tf32=False, fast_math=False)
    assert Setting.from_json({}) == Setting()
    assert Setting.from_json(default_setting(2).to_json()) == default_setting(2)


@pytest.mark.parametrize(
    "change",
    [{"threads": 1}, {"cache": "cold"}, {"accumulate": "float16"}, {"tf32": True}, {"fast_math": True}],
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
    ],
)
def test_bad_settings_are_refused(document: Any, sentence: str) -> None:
    with pytest.raises(InvalidTarget, match=sentence):
        Setting.from_json(document)


def test_more_threads_than_cores_are_refused() -> None:
    check_setting(Setting(threads=2), TWO_CORES)
    with pytest.raises(InvalidTarget, match="3 threads; the target has 2 cores"):
        check_setting(Setting(threads=3), TWO_CORES)
