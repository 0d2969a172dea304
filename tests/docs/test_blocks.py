"""Each code block of README.md, deploy/README.md and docs/ is run, as printed where that can be.

None is passed over: a block that is not in the table fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from dashboard.run.stack import free_port
from tests.databases import ROOT
from tests.distribution.tree import copy_everything, copy_tree, plain_environment, run
from tests.docs.reading import Block, blocks, job_installation
from tests.docs.service import STAMPS, Service, heed_signals, read_until_up, until, what_make_runs
from tests.opatlas.dynamo.installed import installed_at
from tests.tuning.graph.making import relu

ALONE = (pytest.mark.alone, pytest.mark.slow, pytest.mark.group("tests/docs"))  # one service
NIGHTLY = (pytest.mark.nightly, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600))


@dataclass(frozen=True)
class Run:
    """How a block is run, and where that is not to the letter: why, and what is run in its place."""

    by: Callable[[Block, pytest.FixtureRequest, Path], None]
    marks: tuple[Any, ...] = ()
    instead: str = ""


def shell(text: str, folder: Path, **environment: str) -> str:
    return run(["bash", "-euo", "pipefail", "-c", text], folder, timeout_s=500, **environment)


# --- one function for each kind of block


def curl(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    """Typed again until it hits: on a busy machine exploring takes longer than it waits."""
    service: Service = request.getfixturevalue("service")

    def asked() -> Any:
        said = shell(service.here(block.text), folder, OPATLAS_KEY=service.key)
        [result] = json.loads(said)["results"]
        return result if result["status"] == "hit" else None

    assert until(asked, "a hit")["best"]["median_us"] > 0


def make_job_environment(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    """An empty environment with the wheel in it, and the example that follows, run there."""
    tree = copy_tree(folder / "tree")
    for stamp in ("opatlas", "dev"):  # in this order: the second is made anew where the first is newer
        (tree / ".venv" / f"{stamp}.stamp").touch()
    # Bytecode of what ONNX Runtime brings and the example never imports would take longer than the rest.
    run(["bash", "-euo", "pipefail", "-c", block.text], tree, timeout_s=280, PIP_NO_COMPILE="1")
    python = str(tree / "job/bin/python")
    said = run([python, "-m", "pip", "list", "--format=freeze"], folder).lower()
    assert "opatlas==" in said and "django" not in said and "torch" not in said
    [example] = [one for one in blocks() if one.name == ("README.md", "import numpy as np")]
    run_example(example, request, python, folder)


def python_example(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    run_example(block, request, request.getfixturevalue("job_python"), folder)


def run_example(block: Block, request: pytest.FixtureRequest, python: str, folder: Path) -> None:
    service: Service = request.getfixturevalue("service")
    (folder / "example.py").write_text(service.here(block.text))
    cache = str(folder / "cache")

    def asked() -> str:
        """Nothing while all that is known needs a library that the job has not."""
        try:
            return run([python, "example.py"], folder, OPATLAS_KEY=service.key, OPATLAS_CACHE=cache)
        except AssertionError as miss:
            if "ask again in some seconds" not in str(miss):
                raise
            return ""

    said = until(asked, "a hit that the job can load")
    assert said.split()[0] in ("first", "contest", "tuned") and "[[32. 32. 32." in said


def named_operators(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    run([sys.executable, "-c", block.text], folder, OPATLAS_CACHE=str(folder / "cache"))
    assert list((folder / "cache").glob("entries-*.sqlite"))


def session_example(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    made = relu((1000,))
    made.ir_version = 10  # the newest that ONNX Runtime reads is older than onnx writes
    onnx.save(made, folder / "model.onnx")
    said = run([sys.executable, "-c", block.text], folder, OPATLAS_CACHE=str(folder / "cache"))
    assert "onnxruntime 1" in said


def compiled_model(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    text = block.text.replace('"opatlas")', '"opatlas", options={"frameworks": ["eager"]})')
    found = {"PYTHONPATH": f"{installed_at(folder)}:{ROOT}", "OPATLAS_CACHE": str(folder / "cache")}
    said = run([sys.executable, "-c", text], folder, **found)
    assert "torch.Size([8, 32])" in said and "graph 1: PyTorch eager (0 of " in said


def whole_model(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    service: Service = request.getfixturevalue("service")
    [line] = [line for line in block.text.splitlines() if "manage.py" in line]
    onnx.save(relu(("batch", 64)), folder / "my.onnx")
    line = line.replace(".venv/bin/python", sys.executable).replace("manage.py", str(ROOT / "manage.py"))
    assert "1 calls, 1 distinct operators" in shell(line, folder, **service.environment)


def kernel_states(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    from tuning.kernels.models import VersionState

    drawn = block.text.replace("an edit supersedes a live version", "")
    assert set(re.findall(r"[a-z]+", drawn)) == set(VersionState.values)


def kernel_launch(block: Block, request: Any, folder: Path) -> None:
    from opatlas.identity import Setting, parse_operator
    from tuning.routes.manual.header import CUDA, header, whole_numbers
    from tuning.routes.manual.launch_template import fill

    operator = parse_operator({"op": "Softmax", "inputs": [{"shape": [8, 64], "dtype": "float32"}]})
    names = whole_numbers(header(operator, Setting(), CUDA))
    plan = fill(json.loads(block.text), names, operator, "kernel.cubin", "sm_90")
    assert plan.run[0].grid == (8, 1, 1)


def kernel_pattern(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    from django.contrib.auth.models import User
    from django.core.management import call_command

    User.objects.create_user("ada")
    examples = ROOT / "tuning/kernels/examples"
    shutil.copy(examples / "softmax.c", folder)
    document = {**json.loads((examples / "softmax-avx2.json").read_text()), "pattern": json.loads(block.text)}
    (folder / "softmax.json").write_text(json.dumps(document))
    call_command("submit_kernel", str(folder / "softmax.json"), user="ada")


def webhook_request(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    _, got = request.getfixturevalue("delivered")
    head, _, body = block.text.partition("\n\n")
    printed = {line.partition(":")[0] for line in head.splitlines()[1:]}
    assert printed <= {name.lower() for name in got.headers}
    assert {name for name in got.headers if name.startswith("webhook-")} <= printed
    assert sorted(re.findall(r'"(\w+)":', body)) == sorted(json.loads(got.body))


def webhook_verified(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    secret, got = request.getfixturevalue("delivered")
    names: dict[str, Any] = {"request": SimpleNamespace(body=got.body, headers=got.headers)}
    exec(block.text.replace("whsec_…", secret), names)
    assert names["event"]["type"] == "endpoint.test"


def make_run_and_test(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    assert re.findall(r"^make \w+", block.text, re.MULTILINE) == ["make run", "make test"]
    port, tree = free_port(), copy_everything(folder / "tree")
    serve = subprocess.Popen(
        ["make", *STAMPS, "run", f"PORT={port}"], cwd=tree, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=heed_signals,
        env={**plain_environment(), "OPATLAS_LOCK": str(folder / "lock")},
    )  # fmt: skip
    try:
        read_until_up(serve)
    finally:
        os.killpg(serve.pid, signal.SIGINT)  # Ctrl-C
        said, _ = serve.communicate(timeout=60)
    assert "Stopped." in said
    said = shell(f"{shlex.join(what_make_runs('test'))} --collect-only", tree)
    assert re.search(r"\d{4,}/\d{4,} tests collected", said), said[-2000:]


def several_machines(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    """All three blocks of it, in one shell, as somebody types them; then the web server is asked."""
    postgres, redis = (request.getfixturevalue(f"private_{name}") for name in ("postgres", "redis"))
    port, here = free_port(), f"opatlas@127.0.0.1:{postgres.port}/"
    database = postgres.new_database().partition(here)[2]
    [start] = [number for number, one in enumerate(blocks()) if one == block]
    typed = "\n".join(one.text for one in blocks()[start : start + 3])
    for name, ours in {
        "opatlas@db.example:5432/opatlas": here + database,
        "redis://redis.example:6379/0": redis.new_url(),
        "/srv/opatlas": str(folder / "shared"),
        "/var/lib/opatlas": str(folder / "home"),
        "--port 8000": f"--port {port}",
    }.items():
        assert name in typed
        typed = typed.replace(name, ours)
    shown = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", f"{typed}\nwait"], cwd=ROOT, start_new_session=True, text=True,
        stdout=(folder / "said").open("w"), stderr=subprocess.STDOUT,
        env={**plain_environment(), "OPATLAS_LOCK": str(folder / "lock")},
    )  # fmt: skip
    try:
        ready = until(lambda: _asked(f"http://127.0.0.1:{port}/readyz"), "a web server that is ready", 120)
        assert ready["status"] == "ready"
        key = re.findall(r"opk_\S+", (folder / "said").read_text())[0]
        workers = f"http://127.0.0.1:{port}/api/v1/workers/"
        until(lambda: any(one["warm"] for one in _asked(workers, key)["results"]), "a warm worker", 240)
    finally:
        os.killpg(shown.pid, signal.SIGTERM)
        shown.wait(60)


def _asked(url: str, key: str = "") -> Any:
    """What is answered, as JSON; nothing where nobody answers yet."""
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=10) as answer:
        return json.load(answer)
    return None


def with_the_first(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    """It stands after the block that ``several_machines`` begins with."""
    page = [one for one in blocks() if one.page == block.page]
    [start] = [number for number, one in enumerate(page) if one.text.startswith("export DATABASE_URL=")]
    assert block in page[start + 1 : start + 3]


def make_demo(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    tree = copy_everything(folder / "tree")
    onnx.save(relu((32, 64)), tree / "my.onnx")
    lines = [line.partition("#")[0] for line in block.text.splitlines() if line.startswith("make demo")]
    assert len(lines) == 2
    for line in lines:
        short = re.sub("BUDGET_S=[0-9]+", "BUDGET_S=5", line).replace("resnet50", "my.onnx")
        said = shell(f"{short} {' '.join(STAMPS)}", tree, OPATLAS_LOCK=str(folder / "lock"))
        assert "Written to var/demo/report.json" in said
        report = json.loads((tree / "var/demo/report.json").read_text())
        assert report


def makes_tables(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    """That they are the cache's own, tests/opatlas/client/test_protocol.py sees; so of the next block."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.executescript(block.text)


def finds_rows(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    assert "is computed in 32 bits" in shell(block.text, ROOT)


def as_it_stands(block: Block, request: pytest.FixtureRequest, folder: Path) -> None:
    run([sys.executable, "-c", block.text], folder)


RUNS: dict[tuple[str, str], Run] = {
    ("README.md", "make run     # the w"): Run(
        make_run_and_test, NIGHTLY,
        "`make run` for some seconds on another port; `make test` would run itself: it collects only. "
        "What `make run` runs is what every block of this file that needs the service talks to.",
    ),
    ("README.md", "curl -s http://127.0"): Run(curl, ALONE),
    ("README.md", "make dist"): Run(make_job_environment, (*ALONE, pytest.mark.nightly)),
    ("README.md", "import numpy as np"): Run(python_example, ALONE),
    ("README.md", "import opatlas"): Run(session_example),
    ("README.md", "make demo MODEL=resn"): Run(
        make_demo, NIGHTLY, "A model of one operator for 5 s, in a copy of the tree."
    ),
    ("deploy/README.md", "export DATABASE_URL="): Run(
        several_machines, NIGHTLY,
        "With a private PostgreSQL and Redis on one machine; the next two blocks are run with it.",
    ),
    ("deploy/README.md", ".venv/bin/python man"): Run(with_the_first, instead="Run with the block before."),
    ("deploy/README.md", ".venv/bin/granian --"): Run(with_the_first, instead="Run with the first of three."),
    ("docs/client.md", "import numpy as np"): Run(named_operators),
    ("docs/kernels.md", "submitted → building"): Run(
        kernel_states, instead="It is a picture: its words are the states that there are."
    ),
    ("docs/kernels.md", '{"op": "Softmax",'): Run(
        kernel_pattern, (pytest.mark.django_db,), "It is part of a submission: one that has it is submitted."
    ),
    ("docs/kernels.md", '{"run": [{"function"'): Run(
        kernel_launch, (), "It is part of a submission: it is filled in for an operator."
    ),
    ("docs/models.md", "import numpy as np"): Run(session_example),
    ("docs/pytorch.md", "import opatlas"): Run(
        compiled_model, (), "Without Inductor, which takes many seconds for its first graph."
    ),
    ("docs/protocol.md", "PRAGMA application_i"): Run(makes_tables),
    ("docs/protocol.md", "import hashlib, json"): Run(as_it_stands),
    ("docs/semantics.md", "grep '\"openvino\", \"A"): Run(finds_rows),
    ("docs/webhooks.md", "POST /your/path"): Run(
        webhook_request, ALONE, "It is what a receiver gets: one gets the same headers and members."
    ),
    ("docs/webhooks.md", "from standardwebhook"): Run(webhook_verified, ALONE),
}  # fmt: skip

EXTRA = {("README.md", "make demo MODEL=resn"): Run(whole_model, ALONE)}
"""The lines of a block that are quick, run with every `make test`."""


def cases() -> Iterator[Any]:
    for block in blocks():
        for table in (RUNS, EXTRA):
            if (case := table.get(block.name)) or table is RUNS:
                yield pytest.param(block, case, id=" ".join(block.name), marks=case.marks if case else ())


@pytest.mark.parametrize(("block", "case"), list(cases()))
def test_block(block: Block, case: Run | None, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    assert case, f"Nothing runs this block of {block.page}: name {block.name!r} in RUNS of {__file__}."
    case.by(block, request, tmp_path)


def test_a_job_installs_the_version_that_hits_were_timed_with() -> None:
    """Another one's recipes would not be given to it."""
    [pinned] = re.findall(r"onnxruntime==\S+", job_installation().text)
    assert f"\n{pinned}\n" in (ROOT / "requirements-worker.txt").read_text()


def test_the_table_names_blocks_that_there_are() -> None:
    assert set(RUNS) | set(EXTRA) <= {block.name for block in blocks()}
