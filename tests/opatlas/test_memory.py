"""Memory is what the machine and the control group leave."""

from pathlib import Path

import pytest

from opatlas.cgroup import PROC
from opatlas.memory import available_bytes, total_bytes
from tests.opatlas.control_groups import V2, make_groups

MIB = 1 << 20


def groups(folder: Path, files: dict[str, str]) -> Path:
    return make_groups(folder, "0::/job/step", {"sys": ("/", V2)}, files)


def test_the_groups_limit_is_all_there_is(tmp_path: Path) -> None:
    proc = groups(tmp_path, {"sys/job/memory.max": str(300 * MIB), "sys/job/step/memory.max": "max"})
    assert total_bytes(proc) == 300 * MIB


def test_what_the_tightest_group_holds_is_taken_off(tmp_path: Path) -> None:
    files = {
        "sys/job/memory.max": str(300 * MIB),
        "sys/job/memory.current": str(290 * MIB),
        "sys/job/memory.stat": f"anon 5\ninactive_file {40 * MIB}\nactive_file 7",
        "sys/job/step/memory.max": str(200 * MIB),
        "sys/job/step/memory.current": str(20 * MIB),
    }
    assert available_bytes(groups(tmp_path, files)) == 50 * MIB  # 10, and files that can be read again


def test_never_less_than_nothing(tmp_path: Path) -> None:
    files = {"sys/job/memory.max": str(MIB), "sys/job/memory.current": str(2 * MIB)}
    assert available_bytes(groups(tmp_path, files)) == 0


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "", "no number"])
def test_no_limit_is_the_machine(tmp_path: Path, limit: str) -> None:
    proc = groups(tmp_path, {"sys/job/step/memory.max": limit})
    assert total_bytes(proc) == total_bytes(tmp_path)


def test_version_1(tmp_path: Path) -> None:
    files = {
        "sys/memory.limit_in_bytes": str(100 * MIB),
        "sys/memory.usage_in_bytes": str(70 * MIB),
        "sys/memory.stat": f"inactive_file 1\ntotal_inactive_file {10 * MIB}",
    }
    mounts = {"sys": ("/docker/1f", "cgroup cgroup rw,memory")}
    proc = make_groups(tmp_path, "3:memory:/docker/1f", mounts, files)
    assert total_bytes(proc) == 100 * MIB
    assert available_bytes(proc) == 40 * MIB


def test_this_machine_has_some() -> None:
    available = available_bytes(PROC)
    assert available is not None and 0 < available < total_bytes()
