"""Threads are as many as the control group gives time to, and memory is what it leaves."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opatlas.cores import usable_cores
from tests.opatlas.control_groups import V2, make_groups

ALLOWED = len(os.sched_getaffinity(0))
V1_CPU = "cgroup cgroup rw,cpu,cpuacct"
MANY = pytest.mark.skipif(ALLOWED < 2, reason="needs two CPUs")
REAL_V1 = Path("/sys/fs/cgroup/cpu")


def v2(folder: Path, own: str, files: dict[str, str], root: str = "/") -> Path:
    return make_groups(folder, f"0::{own}", {"sys": (root, V2)}, files)


@MANY
@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("150000 100000", 1),  # the half would be had only by standing still in each period
        ("100000 100000", 1),
        ("200000 100000", 2),
        ("299999 100000", 2),
        ("50000 100000", 1),
        ("1000 100000", 1),
        ("20000 10000", 2),
        ("6400000 100000", ALLOWED),
        ("max 100000", ALLOWED),
        ("max", ALLOWED),
        ("", ALLOWED),
        ("what is this", ALLOWED),
        ("100000 0", ALLOWED),
    ],
)
def test_threads_are_what_the_quota_gives(tmp_path: Path, quota: str, cores: int) -> None:
    proc = v2(tmp_path, "/job", {"sys/job/cpu.max": quota})
    assert usable_cores(proc) == min(cores, ALLOWED)


@MANY
def test_the_smallest_quota_of_the_groups_above_counts(tmp_path: Path) -> None:
    files = {
        "sys/a/b/cpu.max": "max 100000",
        "sys/a/cpu.max": "100000 100000",
        "sys/cpu.max": "400000 100000",
    }
    assert usable_cores(v2(tmp_path, "/a/b/c", files)) == 1


def test_the_quota_of_another_group_does_not_count(tmp_path: Path) -> None:
    files = {"sys/a/cpu.max": "max 100000", "sys/b/cpu.max": "1000 100000"}
    assert usable_cores(v2(tmp_path, "/a", files)) == ALLOWED


@MANY
@pytest.mark.parametrize("own", ["/", "/docker/1f", "/../outside", "/docker/1f/init"])
def test_a_container_sees_its_own_group_alone(tmp_path: Path, own: str) -> None:
    """Mounted as the whole hierarchy, whatever name it has outside."""
    proc = v2(tmp_path, own, {"sys/cpu.max": "100000 100000"}, root="/docker/1f" if "docker" in own else "/")
    assert usable_cores(proc) == 1


@MANY
@pytest.mark.parametrize(("quota", "cores"), [("150000", 1), ("-1", ALLOWED), ("0", ALLOWED)])
def test_version_1_says_it_in_two_files(tmp_path: Path, quota: str, cores: int) -> None:
    own = "5:memory:/x\n4:cpu,cpuacct:/docker/1f\n1:name=systemd:/docker/1f\n0::/"
    mounts = {"sys/cpu": ("/docker/1f", V1_CPU), "sys/unified": ("/", "cgroup2 cgroup2 rw")}
    files = {"sys/cpu/cpu.cfs_quota_us": quota, "sys/cpu/cpu.cfs_period_us": "100000"}
    assert usable_cores(make_groups(tmp_path, own, mounts, files)) == cores


@MANY
def test_names_with_blanks(tmp_path: Path) -> None:
    proc = make_groups(
        tmp_path, "0::/my job", {"a mount": ("/", V2)}, {"a mount/my job/cpu.max": "100000 100000"}
    )
    assert usable_cores(proc) == 1


def test_without_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == ALLOWED


@MANY
def test_affinity_below_the_quota_counts(tmp_path: Path) -> None:
    proc = v2(tmp_path, "/job", {"sys/job/cpu.max": "800000 100000"})
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_cores(proc) == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture
def real_group() -> Iterator[Path]:
    made = REAL_V1 / f"opatlas-test-{os.getpid()}"
    try:
        (made / "inner").mkdir(parents=True)
        (made / "cpu.cfs_quota_us").write_text("150000")
    except OSError as error:
        pytest.skip(f"no control group of version 1 can be made here: {error}")
    yield made / "inner"
    (made / "inner").rmdir()
    made.rmdir()


def test_a_process_in_a_group_asks_for_as_many_threads_as_it_is_given(real_group: Path) -> None:
    asks = (
        f"open({str(real_group / 'cgroup.procs')!r}, 'w').write('0')\n"
        "from opatlas.identity import default_setting, detect_target\n"
        "print(detect_target().cores, default_setting(detect_target()).threads)"
    )
    said = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["1", "1"]
