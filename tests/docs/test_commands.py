"""Each command that README.md, deploy/README.md and docs/ name in running text is run, and each name that
they use exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command, get_commands, load_command_class

from dashboard.run.stack import free_port
from tests.compatibility.old_home import unpack
from tests.configuring import configured
from tests.databases import ROOT
from tests.docs.links import of_this_tree
from tests.docs.reading import PAGES, commands, spans
from tests.docs.service import Service, until, what_make_runs


class Typed:
    """What a command may need: a folder with what it reads, and a clock that does not wait."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys

    def manage(self, command: str) -> str:
        """What ``manage.py …`` prints, run in this process."""
        self.monkeypatch.chdir(self.folder)
        call_command(*shlex.split(command.removeprefix("manage.py ")))
        return self.capsys.readouterr().out


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return Typed(tmp_path, monkeypatch, capsys)


def plainly(typed: Typed, command: str) -> None:
    """As it stands, for somebody called ada."""
    User.objects.create_user("ada")
    typed.manage(command)


def network(typed: Typed, command: str) -> None:
    (typed.folder / "MODELS").mkdir()
    for name, sizes in {"one": (8, 9), "other": (8, 7)}.items():
        calls = [
            {"op": "aten.relu.default", "inputs": [{"shape": [size], "dtype": "float32"}]} for size in sizes
        ]
        (typed.folder / "MODELS" / f"{name}.json").write_text(json.dumps(calls))
    assert "learnt from 2 jobs and models with 3 operators" in typed.manage(command)


def kernel(typed: Typed, command: str) -> None:
    examples = ROOT / "tuning/kernels/examples"
    (typed.folder / "softmax.json").write_bytes((examples / "softmax-avx2.json").read_bytes())
    (typed.folder / "softmax.c").write_bytes((examples / "softmax.c").read_bytes())
    plainly(typed, command)


def queue(typed: Typed, command: str) -> None:
    """A verb is asked for: what waits is listed."""
    assert "0 explorations" in typed.manage(f"{command} list")


def for_ever(typed: Typed, command: str) -> None:
    """Until it would wait for the second time."""
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        raise KeyboardInterrupt

    typed.monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        typed.manage(command)
    assert waited == [float(command.split()[-1])]


def new_password(typed: Typed, command: str) -> None:
    """It asks at the terminal."""
    user = User.objects.create_user("NAME")
    typed.monkeypatch.setattr("getpass.getpass", lambda prompt="": "one that is Long enough 7")
    typed.manage(command)
    user.refresh_from_db()
    assert user.check_password("one that is Long enough 7")


def old_home(typed: Typed, command: str) -> None:
    unpack(typed.folder).rename(typed.folder / "OLD_FOLDER")
    with configured(home=typed.folder / "home", store=typed.folder / "store"):
        assert "Taken over: " in typed.manage(command)
    ContentType.objects.clear_cache()  # their numbers are those of before when this test ends


def nothing_published(typed: Typed, command: str) -> None:
    """There is nothing to time again yet, which it says."""
    assert "is 30 minutes old" in typed.manage(command)


def odds_written(typed: Typed, command: str) -> None:
    assert "0 rows written to FILE" in typed.manage(command)
    assert json.loads((typed.folder / "FILE").read_text()) == []


def no_measurements(typed: Typed, command: str) -> None:
    """FILES stands for files of lines: of one that is not there it says so."""
    with pytest.raises(CommandError, match="There is no file FILES"):
        typed.manage(command)


def no_such_key(typed: Typed, command: str) -> None:
    """SHA256 stands for a key's digest: of a key that is not there it says so."""
    with pytest.raises(CommandError, match="SHA256"):
        typed.manage(command)


def restored(typed: Typed, command: str) -> None:
    """The database of these tests is no empty one, which it says (tests/hostile/test_backup.py restores)."""
    with configured(home=typed.folder / "home", store=typed.folder / "home" / "artifacts"):
        typed.manage("manage.py backup FOLDER")
        with pytest.raises(CommandError, match="The database is not empty"):
            typed.manage(command)


def backed_up(typed: Typed, command: str) -> None:
    with configured(home=typed.folder / "home", store=typed.folder / "home" / "artifacts"):
        assert "Backed up: " in typed.manage(command)
    assert (typed.folder / "FOLDER" / "backup.json").exists()


def compared(typed: Typed, command: str) -> None:
    with configured(home=typed.folder, store=typed.folder / "artifacts"):
        assert "0 artifacts were compared, 0 are damaged." in typed.manage(command)


def no_such_api_key(typed: Typed, command: str) -> None:
    """PREFIX stands for a key's first part: of one that is not there it says so."""
    with pytest.raises(CommandError, match="PREFIX"):
        typed.manage(command)


def no_such_file(typed: Typed, command: str) -> None:
    """FILE stands for an archive: of one that is not there it says so (others are in tests/hostile)."""
    with pytest.raises(CommandError, match="FILE cannot be read"):
        typed.manage(command)


def no_such_model(typed: Typed, command: str) -> None:
    """MODEL stands for an uploaded model: of one that is not there it says so."""
    with pytest.raises(CommandError, match="There is no model 'MODEL'"):
        typed.manage(command)


def written_page(typed: Typed, command: str) -> None:
    """Its output is compared with the page, not written over it."""
    command, _, page = command.partition(" > ")
    assert typed.manage(command) == (ROOT / page).read_text()


def printed_page(typed: Typed, command: str) -> None:
    """As :func:`written_page`, of a module: its own page unless the command names one."""
    command, _, page = command.partition(" > ")
    done = subprocess.run(
        [sys.executable, *command.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == (ROOT / (page or "docs/onnxruntime.md")).read_text()


def helped(typed: Typed, command: str) -> None:
    """A million rows take minutes (`make bench ONLY=pages` runs it): it says what it takes."""
    done = subprocess.run(
        [sys.executable, *command.split()[1:], "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "OPATLAS_HOME": str(typed.folder), "DJANGO_SETTINGS_MODULE": "dashboard.settings"},
    )  # fmt: skip
    assert "--implementations" in done.stdout


def lists_counted(typed: Typed, command: str) -> None:
    """Of a list of two problems, one of which is an operator."""
    x, weight = ({"shape": shape, "dtype": "bfloat16"} for shape in (["batch", 64], [64]))
    problems = [
        {"op": "flashinfer.rmsnorm", "inputs": [x, weight]},
        {"op": "flashinfer.top_k_sampling_from_probs", "inputs": [x]},
    ]
    (typed.folder / "flashinfer_definitions.json").write_text(json.dumps(problems))
    done = subprocess.run(
        [sys.executable, *command.split()[1:]],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "OPATLAS_WORKLOADS": str(typed.folder)},
    )  # fmt: skip
    assert "flashinfer_definitions: 1 of 2\n  1 flashinfer: draws random numbers\n" in done.stdout


def web_node(typed: Typed, command: str) -> None:
    """On another port."""
    port = str(free_port())
    node = subprocess.Popen(
        [str(Path(sys.executable).parent / command.split()[0]), *command.split()[1:]], cwd=ROOT,
        env={**os.environ, "OPATLAS_HOME": str(typed.folder), "GRANIAN_PORT": port,
             "DJANGO_SETTINGS_MODULE": "dashboard.settings"},
    )  # fmt: skip
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/healthz"), "the web node")
    finally:
        node.terminate()
        node.wait(60)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:  # URLError is one
        return False


def deployed(typed: Typed, command: str) -> None:
    """That it is clean with OPATLAS_HTTPS=1 test_security.py shows; here, that there is such a check."""
    typed.monkeypatch.delenv("DJANGO_ALLOW_ASYNC_UNSAFE", raising=False)  # a browser's tests may need it
    typed.manage(command)


def make_target(typed: Typed, command: str) -> None:
    """`make test` runs this, and `make lint` stands beside it in CI: what they would run is there."""
    words = what_make_runs(*command.replace("=FOLDER", "=.venv").split()[1:])
    assert words, command
    module = next((after for before, after in pairwise(words) if before == "-m"), None)
    if module:
        path = ROOT / module.replace(".", "/")
        assert path.exists() or path.with_suffix(".py").exists() or module in ("mkdocs", "twine")
    if only := re.search(r"ONLY=(\w+)", command):
        assert words[-1] == only[1]
        from bench.__main__ import BENCHES

        assert only[1] in BENCHES


def ci(typed: Typed, command: str) -> None:
    """It runs this: only its grammar is read."""
    subprocess.run(["bash", "-n", str(ROOT / command)], check=True)
    assert os.access(ROOT / command, os.X_OK)


def written_by_tests(typed: Typed, command: str) -> None:
    """It writes a page that a test compares with what it would write: that is what is compared here too."""
    from tests.hostile.cheats.document import PAGE, page

    assert command.split()[-1] == page.__module__
    assert PAGE.read_text() == page()


def drawn_values(typed: Typed, command: str) -> None:
    """As above; it writes a section."""
    from tests.tuning.measure.judging import drawn_values as made
    from tests.tuning.measure.judging.page import written

    assert command.split()[-1] == made.__name__
    assert written(made.HEADING) == made.section()


def semantics_made(typed: Typed, command: str) -> None:
    """It asks every framework, for an hour: that its page is what its table says is compared here."""
    from opatlas.plan.semantics.table import known_table
    from tests.opatlas.plan.semantics import made, page

    assert command.split()[-1] == made.__name__
    assert made.PAGE.read_text() == page.page(known_table())


def extra(typed: Typed, command: str) -> None:
    """Nothing is installed again: the extra is there, and what it asks for."""
    [name] = re.findall(r"opatlas\[(\w+)\]", command)
    wanted = [line for line in metadata.requires("opatlas") or [] if f'extra == "{name}"' in line]
    assert wanted
    for line in wanted:
        assert metadata.version(re.split(r"[>=;]", line)[0])


HERE: dict[str, Callable[[Typed, str], None]] = {
    ".ci/run": ci,
    "granian --interface wsgi dashboard.wsgi:application": web_node,
    "make bench ONLY=client": make_target,
    "make bench ONLY=models": make_target,
    "make bench ONLY=contest": make_target,
    "make bench ONLY=graph": make_target,
    "make bench ONLY=lookup": make_target,
    "make bench ONLY=pages": make_target,
    "make bench ONLY=reproduced": make_target,
    "make bench ONLY=service": make_target,
    "make bench ONLY=streams": make_target,
    "make bench ONLY=wire": make_target,
    "make dist": make_target,
    "make docs": make_target,
    "make bench-gpu": make_target,
    "make gpu-bundle": make_target,
    "make gpu-home": make_target,
    "make gpu-prebuild": make_target,
    "make lint": make_target,
    "make mutants": make_target,
    "make chaos MINUTES=10": make_target,
    "make pictures OPATLAS_HOME=FOLDER": make_target,
    "make run": make_target,
    "make screenshots": make_target,
    "make stories": make_target,
    "make test": make_target,
    "make test-gpu": make_target,
    "make test-gpu GPU_BIN=FOLDER/bin": make_target,
    "make test-all": make_target,
    "make test-changed": make_target,
    "make test-steady TIMES=10": make_target,
    "make test-cheats": make_target,
    "make test-times": make_target,
    "manage.py adopt_home OLD_FOLDER": old_home,
    "manage.py archive_audit --before 2026-01-01 --to audit.jsonl": plainly,
    "manage.py archive_audit --check FILE": no_such_file,
    "manage.py backup FOLDER": backed_up,
    "manage.py changepassword NAME": new_password,
    "manage.py check --deploy": deployed,
    "manage.py check_ledger": plainly,
    "manage.py create_api_key NAME --expires 2099-12-31 --addresses 192.0.2.0/24 2001:db8::/32": plainly,
    "manage.py create_api_key NAME --user ada --scopes kernels": plainly,
    "manage.py create_api_key NAME --user ada --scopes lookup": plainly,
    "manage.py create_user NAME --organisation ORG --role operator": plainly,
    "manage.py declare_environment": plainly,
    "manage.py describe_configuration > docs/configuration.md": written_page,
    "manage.py describe_figures > docs/figures.md": written_page,
    "manage.py export_odds FILE": odds_written,
    "manage.py import_measurements FILES": no_measurements,
    "manage.py drain_journal": plainly,
    "manage.py drain_journal --every 10": for_ever,
    "manage.py invite --role admin": plainly,
    "manage.py plan MODEL": no_such_model,
    "manage.py plan MODEL --passes kernels,fusion --fusions 8": no_such_model,
    "manage.py plan MODEL --profile FILE": no_such_model,
    "manage.py plan MODEL --passes kernels,fusion,layout --layouts 8": no_such_model,
    "manage.py queue": queue,
    "manage.py rebuild_rollups": plainly,
    "manage.py repeat_build SHA256": no_such_key,
    "manage.py restore FOLDER": restored,
    "manage.py retime_bests": nothing_published,
    "manage.py retire_signer SHA256": no_such_key,
    "manage.py revoke_api_key PREFIX": no_such_api_key,
    "manage.py scrub": compared,
    "manage.py scrub --lost": compared,
    "manage.py sign_artifacts": plainly,
    "manage.py train_predictor MODELS": network,
    "manage.py submit_examples --user ada": plainly,
    "manage.py submit_kernel softmax.json --user ada": kernel,
    "pip install 'opatlas[cli]'": extra,
    "python -m bench.seed service": helped,
    "python -m opatlas.session.surface": printed_page,
    "python -m opatlas.session.surface > docs/onnxruntime.md": printed_page,
    "python -m tests.hostile.cheats.document": written_by_tests,
    "python -m tests.opatlas.plan.semantics.made": semantics_made,
    "python -m tests.tuning.measure.judging.drawn_values": drawn_values,
    "python -m tuning.bare.problems": lists_counted,
}
"""How a command is run; the function says where it is not run as printed."""

RUNNING = {
    "celery -A tuning worker": r"celeryd.* \(-A tuning .*worker\b",
    "manage.py courier": r"manage\.py courier",
    "manage.py serve": r"manage\.py serve",
}
"""What the service of these tests runs itself, and how it is called among its processes."""


@pytest.mark.django_db
@pytest.mark.parametrize("command", [command for command in commands() if command not in RUNNING])
def test_command(command: str, typed: Typed) -> None:
    assert command in HERE, f"Nothing runs `{command}`: say how in HERE of {__file__}."
    HERE[command](typed, command)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.group("tests/docs")  # one service
@pytest.mark.parametrize("command", RUNNING)
def test_command_of_the_service(command: str, service: Service) -> None:
    serve = psutil.Process(service.process.pid)
    lines = [called for process in (serve, *serve.children(recursive=True)) if (called := called_as(process))]
    assert any(re.search(RUNNING[command], line) for line in lines), lines


def called_as(process: psutil.Process) -> str:
    """Nothing where it has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one
        return ""


def test_the_tables_name_commands_that_the_pages_have() -> None:
    assert {*HERE, *RUNNING} <= set(commands())


def test_options_named_alone_are_some_commands_own() -> None:
    own = {name for name, app in get_commands().items() if not app.startswith("django.")}
    known = {
        option
        for name in own
        for action in load_command_class(get_commands()[name], name).create_parser("", name)._actions
        for option in action.option_strings
    }
    named = {span.split()[0] for path in PAGES for span in spans(path) if span.startswith("--")}
    assert named and named <= known


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


FOLDERS = "opatlas|catalog|tuning|dashboard|templates|tests|bench|docs"


@pytest.mark.parametrize("page", of_this_tree(), ids=name_of)
def test_files_exist(page: Path) -> None:
    named = [span for span in spans(page) if re.fullmatch(rf"(?:{FOLDERS})/[\w./*-]*", span)]
    assert not [name for name in named if not list(ROOT.glob(name.rstrip("/")))]


@pytest.fixture(scope="module")
def operations() -> set[tuple[str, str]]:
    """(method, path) of everything that the API has; what stands for a number or a name is ``<>``."""
    from drf_spectacular.generators import SchemaGenerator

    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return {
        (method.upper(), re.sub(r"\{\w+\}", "<>", path).rstrip("/"))
        for path, methods in schema["paths"].items()
        for method in methods
    }


@pytest.mark.parametrize("page", of_this_tree(), ids=name_of)
def test_addresses_of_the_api_exist(page: Path, operations: set[tuple[str, str]]) -> None:
    """``POST /api/v1/x/<id>/y``, and with … in place of what was said before."""
    for span in spans(page):
        match = re.fullmatch(r"((?:(?:GET|POST|PATCH|PUT|DELETE)(?:, )?)+) (…?/\S+)", span)
        for method in match[1].split(", ") if match else ():
            path = re.sub(r"<\w+>", "<>", match[2].partition("?")[0]).rstrip("/") if match else ""
            found = [
                known
                for known in operations
                if known[0] == method
                and (known[1].endswith(path[1:]) if path[0] == "…" else known[1] == path)
            ]
            assert found or not path.startswith(("/api", "…")), span
