"""What walls are made of: programs, user ids, control groups, filters, our own sources."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from opatlas.identity import Target
from tuning.kernels.shipped import examples
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Status
from tuning.measure.sandbox import cgroups, identities, programs, syscalls
from tuning.measure.sandbox.layout import fixed_addresses
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.sandbox.tiers import TIERS, SandboxTier
from tuning.measure.sandbox.walls import Walls
from tuning.routes.manual.own import is_own

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@pytest.fixture
def forgetful() -> Iterator[None]:
    programs.program.cache_clear()
    yield
    programs.program.cache_clear()


@pytest.fixture
def pretended(tmp_path: Path) -> Path:
    """Another bwrap, in a folder of its own."""
    (tmp_path / "bin").mkdir(mode=0o755)
    program = tmp_path / "bin" / "bwrap"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    return program


@pytest.mark.usefixtures("forgetful")
def test_the_program_that_was_found_is_the_one_that_runs(
    pretended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the PATH inside: the command begins with an absolute path, resolved on the worker's."""
    monkeypatch.setenv("PATH", f"{pretended.parent}:{os.environ['PATH']}")
    walls = Walls("T2", "manual", tmp_path)
    try:
        assert str(pretended) in walls.command(["-c", ""])
        assert "bwrap" not in walls.command(["-c", ""])
        assert str(pretended.parent) not in walls.environment()["PATH"]
    finally:
        walls.take_down()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("what", ["program", "folder"])
def test_a_program_that_others_could_write_to_is_refused(
    pretended: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    (pretended if what == "program" else pretended.parent).chmod(0o777)
    monkeypatch.setenv("PATH", str(pretended.parent))
    with pytest.raises(programs.NoProgram, match="others may write"):
        programs.program("bwrap")


@as_root
def test_each_zygote_has_a_user_that_nobody_else_has(target: Target, tmp_path: Path) -> None:
    with (
        Laboratory(tmp_path / "a", target, tier="T2") as one,
        Laboratory(tmp_path / "b", target, tier="T2") as two,
    ):
        users = []
        for lab in (one, two):
            for name in ("manual", "cpp"):
                zygote = lab.zygotes[name]
                zygote.start()
                zygote.wait_ready()
                status = Path(f"/proc/{zygote.ready['pid']}/status").read_text()
                ids = set(status.partition("\nUid:")[2].partition("\n")[0].split())
                ids |= set(status.partition("\nGid:")[2].partition("\n")[0].split())
                assert len(ids) == 1 and "0" not in ids
                users.append(ids.pop())
        assert len(set(users)) == 4
        assert not {identities.claim().number for _ in range(3)} & set(map(int, users))


@pytest.mark.skipif(not fixed_addresses(), reason="this system lets nobody switch randomised addresses off")
@pytest.mark.parametrize("tier", TIERS)
def test_addresses_are_not_randomised_in_any_tier(target: Target, tmp_path: Path, tier: str) -> None:
    """They were in T2 once its user changed: convolutions then took 3 to 35 % longer in most processes."""
    with Laboratory(tmp_path, target, tier=tier) as lab:
        zygote = lab.zygotes["manual"]
        zygote.start()
        zygote.wait_ready()
        personality = Path(f"/proc/{zygote.ready['pid']}/personality").read_text()
    assert int(personality, 16) & 0x0040000


def test_without_libseccomp_there_is_no_tight_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    syscalls.built.cache_clear()
    try:
        with pytest.raises(syscalls.NoFilter, match="apt-get install libseccomp2"):
            syscalls.built()
    finally:
        monkeypatch.undo()
        syscalls.built.cache_clear()


@pytest.mark.skipif(cgroups.why_not() is not None, reason=str(cgroups.why_not()))
def test_a_group_holds_what_nobody_watches(target: Target, tmp_path: Path) -> None:
    """A zygote's group has limits, and goes with it."""
    with Laboratory(tmp_path, target, tier="T2") as lab:
        zygote = lab.zygotes["cpp"]
        zygote.start()
        zygote.wait_ready()
        assert zygote._walls is not None and zygote._walls.group is not None
        folders = zygote._walls.group.folders
        for folder in folders:
            members = {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
            assert zygote.ready["pid"] in members
    assert not any(folder.exists() for folder in folders)


@pytest.mark.skipif(cgroups.why_not() is not None, reason=str(cgroups.why_not()))
def test_what_a_killed_worker_left_goes_with_the_next_group() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = cgroups._create(f"opatlas-{ended.pid}-left")
    mine = cgroups.create(f"opatlas-{os.getpid()}-mine")
    try:
        assert mine is not None and all(folder.exists() for folder in mine.folders)
        assert not any(folder.exists() for folder in left.folders)
    finally:
        left.remove()
        if mine is not None:
            mine.remove()


@pytest.mark.skipif(cgroups.why_not() is not None, reason=str(cgroups.why_not()))
@pytest.mark.parametrize(
    ("limit", "command"),
    [
        ((64 << 20, 64), "x = bytearray(256 << 20)"),
        ((1 << 30, 8), "import os, time\nfor _ in range(32): os.fork() or (time.sleep(9), os._exit(0))"),
    ],
    ids=["memory", "processes"],
)
def test_the_system_itself_ends_who_takes_more(limit: tuple[int, int], command: str) -> None:
    group = cgroups.create(f"opatlas-test-{os.getpid()}")
    assert group is not None
    group.limit(*limit)
    try:
        done = subprocess.run(
            [*group.entering(), "python3", "-c", command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert done.returncode != 0
        assert (group.killed_for_memory() > 0) == (limit[1] == 64)
    finally:
        group.remove()
    assert not any(folder.exists() for folder in group.folders)


def test_version_2_wants_a_group_that_was_delegated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the worker's parent group, where the worker's own holds processes (a made-up tree)."""
    service = tmp_path / "system.slice" / "opatlas.service"
    (service / "worker").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("0::/system.slice/opatlas.service/worker\n")
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    monkeypatch.setattr(cgroups, "OWN", own)
    assert cgroups._parents() == ()
    (service / "cgroup.subtree_control").write_text("memory pids")
    assert cgroups._parents() == (service,)


def test_our_own_sources_are_known_by_their_bytes() -> None:
    for example in examples():
        assert is_own(example.source)
        assert not is_own(example.source + "\n")
    assert not is_own("")


@pytest.mark.parametrize(
    ("tier", "submitted", "own"), [("T2", True, True), ("T1", False, True), ("T0", False, False)]
)
def test_submitted_code_needs_the_tight_tier(tier: str, submitted: bool, own: bool) -> None:
    missing = (("T2", "bwrap is not installed (apt-get install bubblewrap)"),)
    worker = SandboxTier(tier, () if tier == "T2" else missing)
    assert worker.why_not_for(submitted=False, own=False) == ""
    assert (worker.why_not_for(submitted=True, own=False) == "") is submitted
    assert (worker.why_not_for(submitted=True, own=True) == "") is own
    if not submitted:
        assert "apt-get install bubblewrap" in worker.why_not_for(submitted=True, own=False)


def test_a_zygote_without_walls_is_a_failure_and_no_start(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(name: str) -> str:
        raise programs.NoProgram(f"{name} is not installed")

    monkeypatch.setattr("tuning.measure.sandbox.walls.program", none)
    with Laboratory(tmp_path, target, tier="T2") as lab, pytest.raises(ChildFailed) as failed:
        lab.zygotes["manual"].start()
    assert failed.value.status is Status.CRASHED and "bwrap" in failed.value.detail
