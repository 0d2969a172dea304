"""What can be set is said in one place, read in one way, and documented as it is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

import bench.conf
from dashboard.conf import DashboardConf
from dashboard.management.commands.describe_configuration import described
from opatlas.conf import Misconfigured, name_of, read, variable
from tests.configuring import KINDS
from tests.docs.links import of_this_tree

ROOT = Path(__file__).parents[1]
NAMES = {name_of(one) for kind in (*KINDS, bench.conf.BenchConf) for one in fields(kind)}

READS_THE_ENVIRONMENT = {
    "opatlas/conf.py": "the one reader",
    "opatlas/load/torch/compile.py": "a child's own TMPDIR, set by its parent after tempfile had looked",
    "opatlas/session/followed.py": "ONNX Runtime's own ORT_LOAD_CONFIG_FROM_MODEL",
    "opatlas/plan/compiling.py": "what its compiling process inherits",
    "tuning/measure/sandbox/zygote_main.py": "what the laboratory tells its zygote",
    "tuning/measure/sandbox/walls.py": "the zygote's environment, with the loader's LD_LIBRARY_PATH in it",
    "tuning/routes/manual/compiling.py": "the compiler's environment, with one time for all builds in it",
    "opatlas/load/package_stablehlo.py": "XLA's NPROC, put back after a client was made",
    "dashboard/operation/metrics.py": "prometheus_client's own switch",
    "dashboard/run/stack.py": "the environment of child processes",
    "catalog/alive.py": "systemd's own NOTIFY_SOCKET",
    "dashboard/run/dumps.py": "the environment of PostgreSQL's programs",
    "dashboard/operation/front.py": "the names that the web server puts beside a request's headers",
    "dashboard/wsgi.py": "the pipe that `serve` gives its web server, and a name of Django's",
    "bench/pages.py": "the environment of child processes",
    "bench/wire/bare.py": "what the bench tells a web server that it starts",
    "bench/wire/parts.py": "the environment of child processes",
    "bench/wire/serving.py": "the environment of child processes",
    "bench/service/restarts.py": "the environment of child processes",
    "bench/service/upgrading.py": "the environment of child processes",
    "bench/lookup.py": "the environment of child processes",
    "bench/models/modules.py": "the environment of child processes",
    "bench/client.py": "the environment of child processes",
    "tuning/routes/compiler/inductor/compile.py": "whether the zygote was given a device",
    "tuning/bare/home.py": "pyenv's own PYENV_ROOT",
    "tuning/routes/cuda_headers.py": "CUDA_HOME and CUDA_PATH: where CUDA's headers lie",
    "tuning/measure/device/gpus.py": "the loader's LD_LIBRARY_PATH: where the driver may lie",
}
"""Modules that look at the environment, and what for; only the first reads configuration."""

OTHERS = {f"OPATLAS_{name}" for name in ("OP", "THREADS", "ALIGNMENT", "INPUTS", "CONSTANTS", "OUTPUTS")}
"""What documents name that is nothing to set: a kernel's macros."""


@dataclass(frozen=True, kw_only=True)
class Some:
    home: Path = variable(Path("/state"), "folder", "state")
    store: Path = variable(lambda given: given.home / "store", "folder", "artifacts")
    lease_s: float = variable(30.0, "seconds", "of a lease", least=1, most=60)
    tries: int = variable(3, "tries", "of it", name="TRIES")
    deep: bool = variable(True, "1 or 0", "whether")
    code: str = variable("", "text", "a secret", read=lambda text: text or "none", secret=True)


def test_without_any_variable_everything_is_its_default() -> None:
    some = read(Some, {"OPATLAS_LEASE_S": ""})
    assert (some.home, some.store, some.lease_s, some.tries, some.deep, some.code) == (
        Path("/state"), Path("/state/store"), 30.0, 3, True, "none",
    )  # fmt: skip


def test_variables_are_read_by_their_fields_types() -> None:
    given = {
        "OPATLAS_HOME": "/else",
        "OPATLAS_LEASE_S": "2.5",
        "TRIES": "4",
        "OPATLAS_DEEP": "No",
        "OPATLAS_CODE": "x",
    }
    some = read(Some, given)
    assert (some.store, some.lease_s, some.tries, some.deep, some.code) == (
        Path("/else/store"),
        2.5,
        4,
        False,
        "x",
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("OPATLAS_LEASE_S", "ten", "OPATLAS_LEASE_S='ten' cannot be read. It is a number."),
        ("OPATLAS_LEASE_S", "nan", "OPATLAS_LEASE_S='nan' cannot be read. It is a number."),
        ("OPATLAS_LEASE_S", "61", "OPATLAS_LEASE_S='61' is out of bounds: it is at least 1 and at most 60."),
        (
            "OPATLAS_LEASE_S",
            "0.5",
            "OPATLAS_LEASE_S='0.5' is out of bounds: it is at least 1 and at most 60.",
        ),
        ("TRIES", "3.5", "TRIES='3.5' cannot be read. It is a whole number."),
        ("OPATLAS_DEEP", "perhaps", "OPATLAS_DEEP='perhaps' cannot be read. It is 1 or 0."),
    ],
)
def test_a_wrong_value_is_one_clear_sentence(name: str, text: str, said: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        read(Some, {name: text})
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("name", "text"),
    [("DATABASE_URL", "mysql://me:secret@host/x"), ("OPATLAS_LOG", "LOUD"), ("OPATLAS_RATE_API", "6/day"),
     ("OPATLAS_STATIC", "yes"), ("OPATLAS_DIGEST_HOUR", "24"), ("PORT", "0")],
)  # fmt: skip
def test_what_the_service_cannot_use_is_refused_without_secrets(name: str, text: str) -> None:
    with pytest.raises(Misconfigured, match=f"^{name}") as raised:
        read(DashboardConf, {name: text})
    assert "secret" not in str(raised.value)


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(read(Some, {"OPATLAS_CODE": "hunter2"}))


def test_commands_say_it_and_do_nothing(tmp_path: Path) -> None:
    environment = {"OPATLAS_LEASE_S": "ten", "PATH": "", "OPATLAS_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "manage.py", "check"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "OPATLAS_LEASE_S='ten' cannot be read. It is a number.\n"


def test_the_document_is_what_the_code_says() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == described(), "run: manage.py describe_configuration > docs/configuration.md"


def test_no_variable_or_field_is_there_twice() -> None:
    every = [one for kind in (*KINDS, bench.conf.BenchConf) for one in fields(kind)]
    assert len({one.name for one in every}) == len(NAMES) == len(every)


def test_documents_name_no_variable_that_there_is_not() -> None:
    for path in of_this_tree():
        named = set(re.findall(r"\bOPATLAS_[A-Z_]*[A-Z]\b", path.read_text()))
        assert named <= NAMES | OTHERS, path.name


def test_the_environment_is_read_in_one_place() -> None:
    """Writing a variable for a library, or Django's and Celery's own, is not reading."""
    readers = {
        str(path.relative_to(ROOT))
        for package in ("opatlas", "catalog", "tuning", "dashboard", "bench")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "settings_test.py" and _reads(ast.parse(path.read_text()))
    }
    assert readers == set(READS_THE_ENVIRONMENT)


def _reads(tree: ast.AST) -> bool:
    written = {
        id(node.value)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del))
        or (isinstance(node, ast.Attribute) and node.attr in ("setdefault", "update", "pop"))
    }
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and id(node) not in written)
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and node.names[0].name in ("environ", "getenv")
        )
        for node in ast.walk(tree)
    )
