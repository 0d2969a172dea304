"""The machine's cache: shared by processes, and never in a job's way."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from opatlas.client.cache import cachefile
from opatlas.client.cache.store import EntryStore

PLACE = b"p" * 16


@pytest.fixture
def store(tmp_path):
    found = EntryStore(tmp_path / "cache")
    yield found
    found.close()


def key(number: int) -> str:
    return f"o1:{number:064x}"


def test_what_is_kept_is_found_by_another_process_of_the_machine(store, tmp_path):
    store.keep(PLACE, {key(1): ({"status": "hit", "best": {"artifact": "a"}}, 60.0)})
    script = "import sys; from pathlib import Path; from opatlas.client.cache.store import EntryStore\n"
    script += f"print(EntryStore(Path(sys.argv[1])).entry({PLACE!r}, {key(1)!r}).body['best'])"
    found = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "cache"], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "{'artifact': 'a'}"
    assert store.entry(b"q" * 16, key(1)) is None, "another place"


def test_entries_end_and_a_clock_set_back_ends_them_too(store, monkeypatch):
    store.keep(PLACE, {key(1): ({}, 60.0)})
    entry, now = store.entry(PLACE, key(1)), time.time()
    assert 59 < entry.left_s(now) <= 60
    assert entry.left_s(now + 61) == 0.0
    assert entry.left_s(now - 3600) == 0.0


def test_a_damaged_row_is_no_entry(store):
    store.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    with sqlite3.connect(store.path) as other:
        other.execute("UPDATE entries SET body = ?", (b'{"a":2}',))
    other.close()
    assert store.entry(PLACE, key(1)) is None


def test_a_row_that_is_no_text_is_no_entry(store):
    store.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    with sqlite3.connect(store.path) as other:
        other.execute("UPDATE entries SET body = CAST(x'ff00fe' AS TEXT)")
    other.close()
    assert store.entry(PLACE, key(1)) is None
    store.keep(PLACE, {key(1): ({"a": 2}, 60.0)})
    assert store.entry(PLACE, key(1)).body == {"a": 2}


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 8000])
def test_a_damaged_file_is_set_aside_and_begun_anew(store, content, caplog):
    store.path.parent.mkdir()
    store.path.write_bytes(content)
    with caplog.at_level(logging.WARNING, "opatlas"):
        assert store.entry(PLACE, key(1)) is None
    store.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    assert store.entry(PLACE, key(1)).body == {"a": 1}
    (aside,) = store.path.parent.glob("*.damaged-*")
    assert aside.read_bytes() == content, "nothing is lost"
    assert "is set aside" in caplog.text


def test_another_programs_file_is_left_as_it_is(store):
    store.path.parent.mkdir()
    with sqlite3.connect(store.path) as theirs:
        theirs.execute("CREATE TABLE bookmarks (url TEXT)")
    theirs.close()
    store.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    store.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    assert store.entry(PLACE, key(1)).body == {"a": 1}
    (aside,) = store.path.parent.glob("*.damaged-*")
    with sqlite3.connect(aside) as theirs:
        assert theirs.execute("SELECT count(*) FROM bookmarks").fetchone() == (0,)
    theirs.close()


def test_a_file_that_is_damaged_while_it_is_open(store):
    for number in range(200):
        store.keep(PLACE, {key(number): ({"filling": "x" * 2000}, 60.0)})
    with store.path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(os.urandom(40 * 4096))
    with sqlite3.connect(store.path) as other:  # so that the pages are read anew
        other.execute("PRAGMA user_version = 1")
    other.close()
    found = [store.entry(PLACE, key(number)) for number in range(200)]
    assert None in found, "some of it is gone"
    assert all(entry is None or entry.body == {"filling": "x" * 2000} for entry in found)
    store.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    store.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    assert store.entry(PLACE, key(1)).body == {"a": 1}


def test_a_full_disk_costs_entries_and_nothing_else(tmp_path):
    script = f"""
import resource, signal, sys
from pathlib import Path
from opatlas.client.cache.store import EntryStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = EntryStore(Path(sys.argv[1]))
store.keep({PLACE!r}, {{{key(0)!r}: ({{"a": 1}}, 60.0)}})
resource.setrlimit(resource.RLIMIT_FSIZE, (store.path.stat().st_size, resource.RLIM_INFINITY))
for number in range(50):
    store.keep({PLACE!r}, {{f"o1:{{number:064x}}"[:67]: ({{"filling": "x" * 5000}}, 60.0)}})
print(store.entry({PLACE!r}, {key(0)!r}).body, store.counts()["entries"])
"""
    found = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "cache"], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith("{'a': 1}"), found.stdout
    assert int(found.stdout.split()[-1]) < 50
    assert found.stderr.count("is not used") == 1, "told once"


def test_a_folder_that_cannot_be_made(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    store = EntryStore(tmp_path / "file" / "cache")
    with caplog.at_level(logging.WARNING, "opatlas"):
        store.keep(PLACE, {key(1): ({}, 60.0)})
        assert store.entry(PLACE, key(1)) is None
    assert caplog.text.count("is not used") == 1


@pytest.mark.parametrize("whose", ["open to all", "open to the group", "another user's"])
def test_a_folder_that_others_may_write_into(tmp_path, caplog, monkeypatch, whose):
    """They could say whose signatures count, and so what runs."""
    (tmp_path / "cache").mkdir(mode=0o700)
    if whose == "another user's":
        monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    else:
        (tmp_path / "cache").chmod(0o777 if whose == "open to all" else 0o770)
    store = EntryStore(tmp_path / "cache")
    with caplog.at_level(logging.WARNING, "opatlas"):
        store.keep_signers({"a" * 64: {"public_key": "00" * 32, "retired_at": None}})
    assert store.signer("a" * 64) is None and not list((tmp_path / "cache").iterdir())
    assert "name one of your own" in caplog.text


def test_nobody_else_reads_what_was_asked(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o755)  # whatever the umask
    store = EntryStore(tmp_path / "cache")
    store.keep(PLACE, {key(1): ({}, 60.0)})
    assert store.path.stat().st_mode & 0o777 == 0o600
    store.close()


def test_the_least_used_make_room(tmp_path, monkeypatch):
    store = EntryStore(tmp_path / "cache", most_bytes=600_000)
    for number in range(150):
        store.keep(PLACE, {key(number): ({"filling": "x" * 2000}, 60.0)})
        assert store.entry(PLACE, key(0)), "used again and again"
    held = [number for number in range(150) if store.entry(PLACE, key(number))]
    assert held[0] == 0 and held[-1] == 149, "the first was used, the last is new"
    assert 100 < len(held) < 150
    for number in range(150, 400):
        store.keep(PLACE, {key(number): ({"filling": "x" * 2000}, 60.0)})
    assert store.path.stat().st_size < 1_000_000
    store.close()


WRITER = """
import sys
from pathlib import Path
from opatlas.client.cache import cachefile
from opatlas.client.cache.store import EntryStore
cachefile.BUSY_S = 60.0
store, first = EntryStore(Path(sys.argv[1])), int(sys.argv[2])
print("ready", flush=True)
number = first
while number < first + int(sys.argv[3]):
    store.keep(b"p" * 16, {f"o1:{number:064x}": ({"number": number}, 600.0)})
    number += 1
"""


def writer(folder: Path, first: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_write_at_once_and_one_of_them_is_killed(store, tmp_path):
    killed = writer(tmp_path / "cache", 5000, 10**6)
    assert killed.stdout is not None and killed.stdout.readline()
    honest = [writer(tmp_path / "cache", first, 40) for first in (1000, 2000, 3000)]
    for process in honest:
        assert process.stdout is not None and process.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    for process in honest:
        process.communicate()
        assert process.returncode == 0
    with sqlite3.connect(store.path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    with sqlite3.connect(store.path) as database:
        names = [name for (name,) in database.execute("SELECT key FROM entries")]
    database.close()
    found = {name: store.entry(PLACE, name) for name in names}
    assert all(entry.body == {"number": int(name[3:], 16)} for name, entry in found.items())
    # They wait as long as it takes, where others go on without after a quarter of a second.
    assert sum(int(name[3:], 16) < 5000 for name in found) == 120


def test_after_a_fork_both_go_on(store):
    store.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    child = os.fork()
    if not child:
        status = 1
        try:
            found = store.entry(PLACE, key(1))
            store.keep(PLACE, {key(2): ({"a": 2}, 60.0)})
            status = 0 if found and found.body == {"a": 1} else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert store.entry(PLACE, key(2)).body == {"a": 2}
    assert store.has_changed()
    assert not store.has_changed()


def test_nobody_is_within_sqlite_while_a_process_forks(store):
    """A lock of the library's own that another thread held would be locked in the child for ever."""
    begun, ended = threading.Event(), threading.Event()

    def within(database: sqlite3.Connection) -> None:
        begun.set()
        time.sleep(0.1)
        ended.set()

    other = threading.Thread(target=store._try, args=(within, None))
    other.start()
    begun.wait()
    child = os.fork()
    if not child:
        os._exit(0 if ended.is_set() and store.entry(PLACE, key(1)) is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    other.join()
    assert store.entry(PLACE, key(1)) is None, "and the parent has its locks back"


def test_an_older_and_a_newer_client_have_files_of_their_own(tmp_path, monkeypatch):
    ours = EntryStore(tmp_path)
    ours.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    monkeypatch.setattr(cachefile, "FORMAT", cachefile.FORMAT + 1)
    newer = EntryStore(tmp_path)
    assert newer.entry(PLACE, key(1)) is None
    newer.keep(PLACE, {key(1): ({"b": 1}, 60.0)})
    assert ours.entry(PLACE, key(1)).body == {"a": 1}
    ours.close()
    newer.close()


def test_each_service_has_its_own_signers_and_manifests(tmp_path):
    one, other = EntryStore(tmp_path, b"one"), EntryStore(tmp_path, b"other")
    one.keep_signers({"a" * 64: {"public_key": "11"}})
    one.keep_manifests({"b" * 64: {"signer": "a" * 64}})
    assert one.revoke(["c" * 64])
    assert one.signer("a" * 64) == {"public_key": "11"} and other.signer("a" * 64) is None
    assert one.manifest("b" * 64) and other.manifest("b" * 64) is None
    assert one.revoked()[0] == other.revoked()[0] == {"c" * 64}, "what is revoked is, whoever was told"
    assert other.revoke_all() and other.revoked()[1] > 0 and one.revoked()[1] == 0
    one.close()
    other.close()


def test_what_was_revoked_goes_along_when_a_file_is_set_aside(store):
    store.revoke(["c" * 64])
    store._set_aside(ValueError("it is damaged"))
    assert store.revoked()[0] == {"c" * 64}
    assert list(store.path.parent.glob("*.damaged-*"))


def test_a_file_that_somebody_holds_is_left_alone_for_a_while(store, monkeypatch):
    now, tries, open_file = [100.0], [], store._open
    monkeypatch.setattr(cachefile, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    monkeypatch.setattr(store, "_open", lambda: tries.append(1) or open_file())
    store.keep(PLACE, {key(1): ({"a": 1}, 60.0)})
    tries.clear()
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert all(store.entry(PLACE, key(1)) is None for _ in range(100))
    assert len(tries) == 1, "it is waited for once, not a hundred times"
    holder.execute("ROLLBACK")
    holder.close()
    now[0] += cachefile.LEFT_ALONE_S
    assert store.entry(PLACE, key(1)).body == {"a": 1}


def test_a_report_that_no_service_takes_lets_the_others_pass(store):
    for name in ("a-1", "b-1"):
        store.keep_report(name, {"used": name})
    assert [store.claim_report(-1.0)[0] for _ in range(4)] == ["a-1", "b-1", "a-1", "b-1"]


def test_a_report_that_is_being_sent_is_not_changed(store):
    assert store.keep_report("client-1", {"used": 1}) and store.change_report("client-1", {"used": 2})
    assert store.claim_report(30.0) == ("client-1", {"used": 2})
    assert store.claim_report(30.0) is None, "it is left to who claimed it"
    assert not store.change_report("client-1", {"used": 3})
    assert store.claim_report(0.0) == ("client-1", {"used": 2}), "unless that takes too long"
