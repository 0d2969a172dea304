"""A home that 7fa76a5 wrote is taken over, and what it holds is served under the same keys."""

from __future__ import annotations

import fcntl
import importlib
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pysqlite3
import pytest
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, connections

from catalog.conf import conf
from catalog.models import Best, Miss, Organisation, Target, Usage
from catalog.usage.draining import drain_journal
from dashboard.billing import rules
from dashboard.notifications.models import Subscription
from dashboard.run import adopting
from dashboard.run.adopting import NotAdopted, adopt
from opatlas.client import RestClient, fetch_and_load
from opatlas.client.loading import fetching
from opatlas.identity import Target as Machine
from opatlas.identity import parse_operator
from tests.catalog.conftest import own_folders  # noqa: F401 - used by every test here
from tests.compatibility.old_home import unpack
from tuning.kernels.binding import implementations_of
from tuning.kernels.models import KernelVersion

ADAS_KEY = "opk_gewsd2a22dtu_HdGhiXGBQz3CyN7kX0eufyzmEsovSGbVF77hreGVD9M"
ADAS_PASSWORD = "correct horse ada"
SOFTMAX = "o1:0b4cf8d9352a265f1698ec3a08608403f56054f4ab19c2b0e9d095030f3b90eb"
TARGET = "t1:3fd8acceeb86c162b4ef037e6e127f8f33060e8bfcedeaab1aa87f9b36e7eb1a"
SETTING = "s1:18754a9f69cba4e65105b514aff4d5fac2de8826bbe89cc86b404ac3b89b7123"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def old(kept: Path, tmp_path: Path) -> Path:
    """A copy of the old home that a test may spoil."""
    return Path(shutil.copytree(kept, tmp_path / "old"))


@pytest.fixture(autouse=True)
def _what_a_process_remembers_is_forgotten() -> Iterator[None]:
    """Prices are remembered for a second: a test before may have had none."""
    rules.forget()
    yield
    rules.forget()
    ContentType.objects.clear_cache()


@contextmanager
def _sqlite(home: Path) -> Iterator[Any]:
    with closing(pysqlite3.connect(home / "opatlas.sqlite3")) as database:
        yield database
        database.commit()


def test_what_it_holds_is_served_under_the_same_keys(
    kept, live_server, tmp_path, monkeypatch, settings, client
):
    adopt(kept)
    operator = parse_operator({"op": "Softmax", "inputs": [{"dtype": "float32", "shape": [32, 64]}]})
    machine = Machine.from_json(Target.objects.get().description)
    monkeypatch.setattr(fetching, "detect_target", lambda: machine)  # of whatever machine tests run on
    with RestClient(live_server.url, ADAS_KEY, target=machine) as job:
        [answer] = job.lookup([operator])
        assert (answer.key, answer.target, answer.setting) == (SOFTMAX, TARGET, SETTING)
        assert (answer.status, answer.best["route"], answer.best["label"]) == (
            "hit",
            "cpp",
            "softmax-avx2 v1",
        )
        assert answer.price["amount_micros"] == 250
        assert (answer.stage, answer.final, answer.is_default) == ("contest", True, False)
        kernel = fetch_and_load(job, answer, tmp_path / "kernel")
    x = np.linspace(-3, 3, 32 * 64, dtype=np.float32).reshape(32, 64)
    run = kernel.bind({0: x})
    run()
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(run.outputs()[0], e / e.sum(-1, keepdims=True), rtol=1e-5)

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    assert client.login(username="ada", password=ADAS_PASSWORD)
    page = client.get("/operators/").content.decode()
    assert "Softmax float32 32×64" in page and "softmax-avx2 v1" in page
    assert "small-gemm-avx2" in client.get("/kernels/").content.decode()
    served = KernelVersion.objects.get(kernel__name="softmax-avx2", number=1)
    assert implementations_of(served).get().pk == answer.best["implementation"]  # it can be withdrawn


def _columns(model: Any) -> set[str]:
    """What the old home has of it."""
    with connections["adopted"].cursor() as cursor:
        cursor.execute(f"PRAGMA table_info({model._meta.db_table})")
        return {row[1] for row in cursor.fetchall()}


@pytest.mark.django_db
def test_every_row_is_the_same_and_numbers_go_on(kept):
    adopt(kept)
    compared = 0
    with adopting._opened(kept):
        for model in apps.get_models(include_auto_created=True):
            columns = _columns(model)
            if not columns:
                continue  # a table of what came later
            names = [field.attname for field in model._meta.concrete_fields if field.column in columns]
            before, after = (
                list(model._base_manager.using(alias).order_by("pk").values(*names))
                for alias in ("adopted", "default")
            )
            if model._meta.label == "catalog.JournalSegment":
                before = [row | {"node": after[0]["node"]} for row in before]
            assert after == before, model._meta.label
            compared += len(after)
    assert compared > 1000
    assert set(Best.objects.filter(is_default=True).values_list("route", flat=True)) == {"eager"}
    last = Organisation.objects.order_by("pk").last().pk
    assert Organisation.objects.create(name="New").pk > last


@pytest.mark.django_db
def test_what_was_not_drained_is_counted_once(kept, configure):
    configure(node="another machine")
    adopt(kept)
    before = Usage.objects.count()
    assert drain_journal() == 1  # the journal that had been drained is not drained again
    assert drain_journal() == 0
    assert Usage.objects.count() == before
    assert Miss.objects.filter(operator__op_type="Tanh").exists()


@pytest.mark.django_db
def test_keys_come_along_for_their_owner_only_and_the_old_home_is_only_read(kept, configure):
    configure(secret_key="")
    new = conf().home
    new.mkdir()
    (new / "secret_key").write_text("made by this very start")
    before = _contents(kept)
    adopt(kept)
    for name in ("secret_key", "signing_key.pem", "vapid.pem"):
        assert (new / name).read_bytes() == (kept / name).read_bytes()
        assert stat.S_IMODE((new / name).stat().st_mode) == 0o600
    assert _contents(kept) == before


def _contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.django_db
def test_what_is_only_written_ahead_is_read_too(old):
    with _sqlite(old) as database:
        database.execute("UPDATE catalog_organisation SET name = 'Ada & Sons' WHERE name = 'Ada Labs'")
        database.commit()
        assert (old / "opatlas.sqlite3-wal").stat().st_size  # a service that was killed leaves it so
        adopt(old)
    assert Organisation.objects.filter(name="Ada & Sons").exists()


def _no_database(home: Path) -> None:
    (home / "opatlas.sqlite3").unlink()


def _no_sqlite(home: Path) -> None:
    (home / "opatlas.sqlite3").write_bytes(b"ransom note " * 1000)


def _another_sqlite(home: Path) -> None:
    (home / "opatlas.sqlite3").unlink()
    with _sqlite(home) as database:
        database.execute("CREATE TABLE songs (id INTEGER)")


def _earlier_version(home: Path) -> None:
    with _sqlite(home) as database:
        database.execute("DELETE FROM django_migrations WHERE name = '0014_winners_by_method'")


def _unknown_table(home: Path) -> None:
    with _sqlite(home) as database:
        database.execute("CREATE TABLE songs (id INTEGER)")


def _unknown_column(home: Path) -> None:
    with _sqlite(home) as database:
        database.execute("ALTER TABLE catalog_best ADD COLUMN mood TEXT")


def _dangling(home: Path) -> None:
    with _sqlite(home) as database:
        database.execute(
            "UPDATE catalog_best SET operator_id = 999 WHERE id = (SELECT max(id) FROM catalog_best)"
        )


def _changed_file(home: Path) -> None:
    next(path for path in home.glob("artifacts/??/??/*")).write_bytes(b"changed")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_no_database, r"is no home of 7fa76a5: it has no opatlas\.sqlite3\.$"),
        (_no_sqlite, r"cannot be read as a database"),
        (_another_sqlite, r"was not written by 7fa76a5"),
        (_earlier_version, r"was not written by 7fa76a5: start that version on it once, first\.$"),
        (_unknown_table, r"has tables that nothing here reads: songs\.$"),
        (_unknown_column, r"catalog_best has columns that nothing here reads: mood\.$"),
        (_dangling, r"cannot be taken over: .*catalog_best"),
        (_changed_file, r"cannot be taken over: .*SHA-256"),
    ],
)
@pytest.mark.django_db
def test_what_is_no_such_home_is_refused_and_changes_nothing(old, spoil, sentence):
    spoil(old)
    with pytest.raises(NotAdopted, match=sentence):
        adopt(old)
    assert not Organisation.objects.exists() and not Best.objects.exists()
    assert ContentType.objects.exists()
    assert not (conf().home / "signing_key.pem").exists()


@pytest.mark.django_db
def test_a_service_that_still_runs_is_not_taken_over(old):
    with next(old.glob("journal/*.jsonl")).open() as segment:
        fcntl.flock(segment, fcntl.LOCK_EX)
        with pytest.raises(NotAdopted, match=r"The service still runs in .*: stop it first"):
            adopt(old)


@pytest.mark.django_db
def test_a_database_that_is_in_use_is_not_filled(kept):
    Organisation.objects.create(name="Here already")
    with pytest.raises(CommandError, match=r"The new database is not empty \(catalog_organisation\)"):
        call_command("adopt_home", str(kept))
    assert [row.name for row in Organisation.objects.all()] == ["Here already"]


@pytest.mark.django_db
def test_another_signing_key_is_not_overwritten(kept):
    conf().home.mkdir()
    (conf().home / "signing_key.pem").write_text("mine")
    with pytest.raises(NotAdopted, match=r"signing_key\.pem is another key"):
        adopt(kept)
    assert (conf().home / "signing_key.pem").read_text() == "mine"


@pytest.mark.django_db
def test_an_old_database_is_not_migrated_but_told_what_to_do():
    tables = importlib.import_module("catalog.migrations.0001_tables")
    with pytest.raises(CommandError, match=r"manage\.py adopt_home OLD_FOLDER"):
        tables.refuse_earlier(apps, SimpleNamespace(connection=connection))


def test_a_subscription_goes_on_by_the_same_channels(old, db):
    with _sqlite(old) as database:
        database.execute("UPDATE notifications_subscription SET by_page = 0, by_email = 1, by_push = 1")
    adopt(old)
    assert Subscription.objects.get().told_by == ["email", "push"]
