"""The tests' own servers: they work, they leave nothing behind, and their absence is loud."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.services import PrivatePostgres, PrivateRedis

ASKS_FOR_REDIS = """
import pytest

def test_asks(private_redis):
    assert private_redis.url

def test_does_not():
    pass
"""


@pytest.mark.services
def test_every_database_is_a_new_one(private_postgres):
    import psycopg

    first, second = private_postgres.new_database(), private_postgres.new_database()
    assert first != second
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE here (id int)")
    with psycopg.connect(second) as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM here")


@pytest.mark.services
@pytest.mark.parametrize("kind", [PrivatePostgres, PrivateRedis])
def test_stopping_leaves_neither_process_nor_folder(kind, request):
    request.getfixturevalue("private_postgres" if kind is PrivatePostgres else "private_redis")  # or skip
    server = kind()
    folder, process = server._folder, server._process
    assert folder.exists()
    server.stop()
    assert process.poll() is not None
    assert not folder.exists()


@pytest.mark.services
def test_a_server_dies_with_its_test_run(private_redis, tmp_path):
    code = (
        "import os, signal\nfrom tests.services import PrivateRedis\n"
        "server = PrivateRedis()\nprint(server._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    server = Path(f"/proc/{int(killed.stdout)}/stat")
    for _ in range(100):
        if not server.exists() or server.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the server outlived its test run")


def run_without_redis(folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_asks.py").write_text(ASKS_FOR_REDIS)
    environment = {**os.environ, "PATH": str(folder), "PYTHONPATH": str(Path.cwd()), **variables}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
         "--rootdir", str(folder), "-p", "tests.conftest", "-p", "no:django", str(folder / "test_asks.py")],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip


def test_a_missing_program_is_said_loudly(tmp_path):
    done = run_without_redis(tmp_path, OPATLAS_REQUIRE_SERVICES="")
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    assert "NOT TESTED: PROGRAMS ARE MISSING" in done.stdout
    assert "apt-get install redis-server" in done.stdout


def test_where_services_are_required_a_missing_program_fails_the_run(tmp_path):
    done = run_without_redis(tmp_path, OPATLAS_REQUIRE_SERVICES="1")
    assert done.returncode == 1
    assert "1 passed, 1 error" in done.stdout
