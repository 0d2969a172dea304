"""What docs/changing.md says of a change is enough: made in a copy of the tree, it works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.databases import ROOT, new_sqlite

Tree = Callable[[str], str]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the product's code, without what tests and benches bring."""
    copy = tmp_path / "tree"
    ignore = shutil.ignore_patterns("__pycache__", "static")
    for name in ("opatlas", "catalog", "tuning", "dashboard", "templates"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignore)
    (copy / "dashboard" / "static").mkdir()
    return copy


def add_line(path: Path, before: str, line: str) -> None:
    """One line more, in front of the line that begins with ``before``."""
    text = path.read_text()
    assert text.count(f"\n{before}") == 1, f"{path.name} has no one line that begins with {before!r}"
    path.write_text(text.replace(f"\n{before}", f"\n{line}\n{before}"))


def run(tree: Path, program: str, **variables: str) -> str:
    """What a program says that imports the copy."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "DJANGO_SETTINGS_MODULE": "dashboard.settings_test"}
    environment |= {"OPATLAS_HOME": str(tree / "home"), **variables}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ROUTE = """
from opatlas.load.numpy_recipe import missing
from tuning.routes.base import No, Yes
from tuning.routes.library.recipes import RecipeRoute


class Dummy(RecipeRoute):
    name = "dummy"
    distributions = ("numpy",)
    preload = ("numpy",)

    def supports(self, operator, setting):
        reason = missing(operator)
        return No(reason) if reason else Yes()

    def variants(self, operator, setting):
        yield {"library": "numpy", "call": "matmul"}, "a product"
"""

USE_ROUTE = """
import numpy as np, pathlib, tempfile
from opatlas.identity import Setting, detect_target, parse_operator
from opatlas.load import load
from tuning.routes.base import Budget
from tuning.routes.registry import ROUTES
route = next(one for one in ROUTES if one.name == "dummy")
value = {"dtype": "float32", "shape": [8, 8]}
operator, setting = parse_operator({"op": "MatMul", "inputs": [value, value]}), Setting(threads=1)
[candidate] = route.candidates(operator, detect_target(), setting, Budget(seconds=1.0))
folder = pathlib.Path(tempfile.mkdtemp())
built = route.build(operator, detect_target(), setting, candidate, folder)
kernel = load(built.manifest, built.folder)
kernel.prepare({})
a, b = np.random.default_rng(1).standard_normal((2, 8, 8), np.float32)
run = kernel.bind({0: a, 1: b})
run()
np.testing.assert_allclose(run.outputs()[0], a @ b, rtol=1e-5)
print(candidate.label)
"""


def test_a_library_route_is_its_file_and_a_line(tree: Path) -> None:
    (tree / "tuning/routes/library/dummy.py").write_text(ROUTE)
    registry = tree / "tuning/routes/registry.py"
    add_line(registry, "from tuning.routes.manual.cpp", "from tuning.routes.library.dummy import Dummy")
    add_line(registry, "    CppRoute(),", "    Dummy(),")
    assert run(tree, USE_ROUTE) == "a product"


CHANNEL = """
from dashboard.notifications.channels.base import Errand, Sending
from dashboard.notifications.channels.outcome import SendResult


class Pager(Sending):
    name, label = "pager", "Pager"

    def errands(self, letters):
        return [Errand(letters, lambda until: {one.message_id: _beep(one) for one in letters})]


def _beep(letter):
    print("beep:", letter.subject)
    return SendResult(ok=True)
"""

USE_CHANNEL = """
import django; django.setup()
from django.core.management import call_command
from django.contrib.auth.models import User
from catalog.viewing import viewer_of
from dashboard.notifications import subscribing
from dashboard.notifications.delivering import deliver
from dashboard.notifications.find.notify import notify_test
from dashboard.notifications.templatetags.notifying import choices
from dashboard.notifications.write import subjects
call_command("migrate", verbosity=0)
call_command("makemigrations", check=True, dry_run=True, verbosity=0)
ada = User.objects.create_superuser("ada", password="ada")
about = subjects.operators_that({"q": "Conv"})
wish = subscribing.wish(about.subject, ["hit"], ["pager"], "at_once", ada)
row, _ = subscribing.subscribe(ada, viewer_of(ada), about, wish)
assert ("pager", "Pager", True) in choices(row)["channels"]
notify_test(row)
print("arrived:", deliver())
"""


def test_a_notification_channel_is_its_folder_and_a_line(tree: Path) -> None:
    channels = tree / "dashboard/notifications/channels"
    (channels / "pager").mkdir()
    (channels / "pager/__init__.py").touch()
    (channels / "pager/channel.py").write_text(CHANNEL)
    registry = channels / "registry.py"
    add_line(
        registry,
        "from dashboard.notifications.channels.push",
        "from dashboard.notifications.channels.pager.channel import Pager",
    )
    registry.write_text(registry.read_text().replace("Webhook(), Push())", "Webhook(), Push(), Pager())"))
    # The copy finds nothing left to migrate in a database that this tree has migrated.
    migrated = new_sqlite(tree.parent / "migrated.sqlite3")
    said = run(tree, USE_CHANNEL, DATABASE_URL=migrated).splitlines()
    assert said[0].startswith("beep: ")
    assert said[1:] == ["arrived: 1"]


USE_OPERATOR_TYPE = """
import math
from opatlas.identity import Setting, describe, detect_target, parse_operator
from opatlas.load.torch.graph import missing
from tuning.routes.compiler.halide.table import limit
from opatlas.load.xla.table import missing as missing_in_xla
operator = parse_operator({"op": "Det", "inputs": [{"dtype": "float32", "shape": [4, 4]}]})
print(describe(operator).flops, missing(operator), missing_in_xla(operator), limit(operator) is None)
"""


def test_an_operator_type_is_a_line_of_the_table_and_its_builders(tree: Path) -> None:
    """Det, which PyTorch has and XLA has not: with a line that says so and a builder, XLA has it."""
    assert "no Det" in run(tree, USE_OPERATOR_TYPE)
    table = tree / "opatlas/identity/operator_types.py"
    [line] = [line for line in table.read_text().splitlines() if line.startswith("Det ")]
    table.write_text(table.read_text().replace(line, "Det linear 7 torch xla"))
    family = tree / "opatlas/load/xla/linear.py"
    add_line(family, '    "Einsum"', '    "Det": lambda site: jnp.linalg.det,')
    assert run(tree, USE_OPERATOR_TYPE) == "7.0 None None False"
    check = (
        "from opatlas.load.xla import lower, linear\n"
        "import jax.numpy as jnp\n"
        "print(float(linear.BUILDERS['Det'](None)(2 * jnp.eye(2))))"
    )
    assert run(tree, check) == "4.0"


USE_COLUMN = """
import django; django.setup()
from django.template.loader import render_to_string
from django.test import RequestFactory
from catalog.selectors.statistics import RouteTraffic
from dashboard.pages.overview.tables import routes
table = routes([RouteTraffic("library", "onednn", 4, 8.0, 100.0)])
page = render_to_string("parts/_table.html", {"table": table}, RequestFactory().get("/"))
shown = 'data-label="Calls a hit">2.00×</td>' in page
print(shown, table.as_csv().split(), table.exported_rows()[0]["repeats"])
"""


def test_a_column_of_a_page_is_a_line(tree: Path) -> None:
    column = '    Column("repeats", "Calls a hit", "ratio", lambda row: row.calls / row.hits),'
    add_line(
        tree / "dashboard/pages/overview/tables.py",
        '    Column("saved_s", "Time saved", "us", show=',
        column,
    )
    said = "True ['route,hits,calls,repeats,saved_s', 'onednn,4,8.0,2.0,0.0001'] 2.0"
    assert run(tree, USE_COLUMN) == said
