"""The process's thread pool: every task once, no deadlock, no left-over burning, forks survived."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opatlas.errors import LoadError
from opatlas.load.pool import Threads, ensure_built, enter_pool, pool_library
from opatlas.load.toolchain import compile_shared
from opatlas.plan.resting import OtherThreads
from tests.opatlas.load.threads import cpu_ns, threads_of_this_process

SOURCE = """
#include <stdatomic.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include "opatlas_abi.h"
#define MOST 4096
typedef struct {
  _Atomic int hits[MOST];
  _Atomic int bad;
  const opatlas_threads* threads;
  int inner, fail;
} log_t;
static int count_body(int32_t task, int32_t tasks, void* arg) {
  log_t* log = arg;
  if (task < 0 || task >= tasks || tasks > MOST) log->bad++;
  log->hits[task]++;
  return task == log->fail ? 7 : 0;
}
static int outer_body(int32_t task, int32_t tasks, void* arg) {
  log_t* log = arg;
  return log->threads->parallel_for(log->threads->pool, count_body, log, log->inner);
}
/* Runs `rounds` parallel loops of `tasks` and returns how many tasks did not run exactly once. */
int stress(const opatlas_threads* threads, int rounds, int tasks) {
  static log_t logs[8];
  static _Atomic int next;
  log_t* log = &logs[next++ % 8];
  int wrong = 0;
  for (int r = 0; r < rounds; r++) {
    memset(log, 0, sizeof *log);
    log->fail = -1;
    if (threads->parallel_for(threads->pool, count_body, log, tasks)) wrong++;
    for (int i = 0; i < tasks; i++) wrong += log->hits[i] != 1;
    wrong += log->bad;
  }
  return wrong;
}
int nested(const opatlas_threads* threads, int outer, int inner) {
  static log_t log;
  memset(&log, 0, sizeof log);
  log.threads = threads; log.inner = inner; log.fail = -1;
  if (threads->parallel_for(threads->pool, outer_body, &log, outer)) return -1;
  int wrong = 0;
  for (int i = 0; i < inner; i++) wrong += log.hits[i] != outer;
  return wrong;
}
int failing(const opatlas_threads* threads, int tasks, int which) {
  static log_t log;
  memset(&log, 0, sizeof log);
  log.fail = which;
  return threads->parallel_for(threads->pool, count_body, &log, tasks);
}
static _Atomic int running, most, wanted, patience_ms;
static int slow_body(int32_t task, int32_t tasks, void* arg) {
  int now = ++running;
  int seen = most;
  while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now)) {}
  /* A busy host lets the others come late. */
  while (most < wanted && patience_ms-- > 0) usleep(1000);
  usleep(3000);
  running--;
  return 0;
}
/* Tasks that ran at the same time, the first of which wait for `expected` of them. */
int most_at_once(const opatlas_threads* threads, int tasks, int expected) {
  most = 0, wanted = expected, patience_ms = 30000;
  threads->parallel_for(threads->pool, slow_body, 0, tasks);
  return most;
}
"""


@pytest.fixture(scope="module")
def stress(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("pool")
    (folder / "stress.c").write_text(SOURCE)
    compile_shared([folder / "stress.c"], folder / "stress.so")
    return ctypes.CDLL(str(folder / "stress.so"))


@pytest.fixture(params=[1, 2, 3, 8])
def threads(request: pytest.FixtureRequest) -> Iterator[Threads]:
    made = Threads(request.param)
    yield made
    made.close()


def test_every_task_runs_exactly_once(stress: ctypes.CDLL, threads: Threads) -> None:
    for tasks in (1, 2, 3, 17, 1000):
        assert stress.stress(ctypes.byref(threads.struct), 300, tasks) == 0


def test_no_tasks_is_no_work(stress: ctypes.CDLL, threads: Threads) -> None:
    assert stress.stress(ctypes.byref(threads.struct), 3, 0) == 0


def test_nested_loops_finish(stress: ctypes.CDLL, threads: Threads) -> None:
    for _ in range(50):
        assert stress.nested(ctypes.byref(threads.struct), 8, 100) == 0


def test_loops_from_several_threads_finish(stress: ctypes.CDLL, threads: Threads) -> None:
    wrong: list[int] = []

    def work() -> None:
        wrong.append(stress.stress(ctypes.byref(threads.struct), 300, 16))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert wrong == [0, 0, 0, 0]


def test_an_error_comes_back(stress: ctypes.CDLL, threads: Threads) -> None:
    assert stress.failing(ctypes.byref(threads.struct), 20, 13) == 7
    assert stress.failing(ctypes.byref(threads.struct), 20, -1) == 0


def test_no_more_threads_work_than_a_kernel_may_use(stress: ctypes.CDLL) -> None:
    """The pool is as large as the largest setting asked for; a kernel of a smaller one gets its own share."""
    large, small = Threads(4), Threads(2)
    assert stress.most_at_once(ctypes.byref(large.struct), 16, 4) == 4
    assert stress.most_at_once(ctypes.byref(small.struct), 16, 2) == 2


def test_fewer_work_than_a_kernel_is_told_where_there_are_fewer(stress: ctypes.CDLL) -> None:
    told = Threads(8, most=2)
    assert told.struct.count == 8 and Threads(2, most=8).struct.count == 2
    assert stress.most_at_once(ctypes.byref(told.struct), 16, 2) == 2
    assert stress.stress(ctypes.byref(told.struct), 100, 17) == 0
    assert stress.most_at_once(ctypes.byref(Threads(2, most=8).struct), 16, 2) == 2


def test_threads_with_pools_of_their_own_have_their_threads_at_the_same_time(stress: ctypes.CDLL) -> None:
    """On everybody's pool the second loop would have one thread: three at work in all."""
    told, found, begin = Threads(8), list[int](), threading.Barrier(2)

    def work(number: int) -> None:
        enter_pool(number, 2)
        begin.wait(30)
        found.append(stress.most_at_once(ctypes.byref(told.struct), 100, 4))

    workers = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert max(found) == 4


def test_loops_on_pools_of_their_own_finish(stress: ctypes.CDLL) -> None:
    two, wrong = Threads(2), list[int]()

    def work(number: int) -> None:
        enter_pool(number, 2)
        wrong.append(stress.stress(ctypes.byref(two.struct), 300, 16))

    workers = [threading.Thread(target=work, args=(number,)) for number in (0, 1, 1, 16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert wrong == [0, 0, 0, 0]


@pytest.mark.parametrize(("number", "most"), [(17, 1), (-1, 1), (1, -1)])
def test_a_pool_that_there_is_not_is_refused(number: int, most: int) -> None:
    with pytest.raises(LoadError, match=f"no thread pool {number} for {most} threads"):
        enter_pool(number, most)


def test_workers_sleep_when_there_is_nothing_to_do(stress: ctypes.CDLL) -> None:
    pool_library().opatlas_pool_stop()
    before = threads_of_this_process()
    two = Threads(2)
    stress.stress(ctypes.byref(two.struct), 10, 8)
    [worker] = threads_of_this_process() - before
    end = time.monotonic() + 30.0
    while worker in OtherThreads().at_work():
        assert time.monotonic() < end
        time.sleep(0.001)
    slept_at = cpu_ns(worker)
    time.sleep(0.1)
    assert cpu_ns(worker) == slept_at > 0


def test_forked_child_has_a_pool_of_its_own(stress: ctypes.CDLL) -> None:
    two = Threads(2)
    assert stress.stress(ctypes.byref(two.struct), 10, 8) == 0
    assert pool_library().opatlas_pool_workers() >= 1
    child = os.fork()
    if child == 0:
        lazy = pool_library().opatlas_pool_workers() == 0
        wrong = stress.stress(ctypes.byref(two.struct), 300, 8)
        os._exit(0 if lazy and wrong == 0 and pool_library().opatlas_pool_workers() == 1 else 1)
    assert wait_for(child) == 0
    assert stress.stress(ctypes.byref(two.struct), 100, 8) == 0


def test_fork_while_another_thread_is_in_a_loop(stress: ctypes.CDLL) -> None:
    two = Threads(2)
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            stress.stress(ctypes.byref(two.struct), 20, 8)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(min(1, stress.stress(ctypes.byref(two.struct), 20, 8)))
            assert wait_for(child) == 0
    finally:
        stop.set()
        busy.join()


def wait_for(child: int, seconds: float = 30.0) -> int:
    """The child's exit code; a child that hangs is killed and fails the test."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the forked child hangs")


def test_stop_ends_the_workers_and_the_next_loop_starts_them(stress: ctypes.CDLL) -> None:
    two = Threads(2)
    stress.stress(ctypes.byref(two.struct), 3, 8)
    pool_library().opatlas_pool_stop()
    assert pool_library().opatlas_pool_workers() == 0
    assert stress.stress(ctypes.byref(two.struct), 50, 8) == 0
    assert pool_library().opatlas_pool_workers() == 1


def test_pool_is_built_into_the_cache_once(tmp_path: Path) -> None:
    code = "from opatlas.load.pool import ensure_built; p = ensure_built(); print(p, p.stat().st_mtime_ns)"
    environment = {**os.environ, "OPATLAS_CACHE": str(tmp_path / "cache")}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith(str(tmp_path / "cache"))
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [ensure_built().name]


def test_cache_that_cannot_be_written_is_named(tmp_path: Path, configure: Any) -> None:
    (tmp_path / "file").write_text("")
    configure(cache=tmp_path / "file")
    with pytest.raises(LoadError, match="set OPATLAS_CACHE to a folder that can be written"):
        ensure_built()


@pytest.fixture
def planted(tmp_path: Path, configure: Any) -> Iterator[Path]:
    """A library of the right name, where another user could have put it."""
    configure(cache=tmp_path / "cache")
    path = tmp_path / "cache" / ensure_built().name
    pool_library.cache_clear()
    yield path
    pool_library.cache_clear()


@pytest.mark.parametrize("how", ["open file", "another's", "link"])
def test_a_pool_that_others_could_have_put_there_is_built_anew(
    planted: Path, tmp_path: Path, how: str
) -> None:
    (tmp_path / "theirs.so").write_bytes(b"no library")
    if how == "open file":
        planted.write_bytes(b"no library")
        planted.chmod(0o666)
    elif how == "another's":
        if os.geteuid():
            pytest.skip("only root gives a file away")
        planted.write_bytes(b"no library")
        os.chown(planted, 23456, 23456)
    else:
        planted.unlink()
        planted.symlink_to(tmp_path / "theirs.so")
    assert pool_library().opatlas_pool_workers() >= 0
    assert planted.read_bytes() != b"no library" and not planted.is_symlink()


def test_a_pool_in_a_folder_that_is_open_to_others_is_not_loaded(planted: Path) -> None:
    planted.write_bytes(b"no library")
    planted.parent.chmod(0o777)
    with pytest.raises(LoadError, match="open for others to write into"):
        pool_library()


def test_a_pool_is_built_in_no_folder_that_others_may_write_into(tmp_path: Path, configure: Any) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    configure(cache=tmp_path / "shared")
    with pytest.raises(LoadError, match="open for others to write into"):
        ensure_built()
    assert not list((tmp_path / "shared").iterdir())
