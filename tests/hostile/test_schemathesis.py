"""Schemathesis against a real server and its live schema: no 5xx, and every answer as the schema promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.run.stack import Stack
from tests.hostile.conftest import Deployment

MAY_REFUSE = 12
"""Operations that answered nothing but 401 or 403: what only a person may do, as approving or subscribing,
and payments, which are signed."""
SOME_OF, SOME = " of some", r"/(lookup|operators|explorations|misses)/?"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"

# Something to find: an operator with a result and a file, one that missed. The key's number is one that no
# request guesses: some revoke keys.
SETUP = """
import json, pathlib, tempfile, django; django.setup()
from catalog import models
from catalog.best.publishing import publish
from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation, register_operator, register_setting, register_target
from django.utils import timezone
from tests.catalog import making
from tuning.models import Exploration
target, setting = register_target(making.TARGET), register_setting(making.SETTING)
place = {"operator": register_operator(making.relu(64)), "target": target, "setting": setting}
folder = pathlib.Path(tempfile.mkdtemp())
files = making.write_file(folder, "kernel.so", b"code")
made = publish(making.new_result(place, "tvm", 1.5, kind="c-abi", files=files, folder=folder))
lookup(LookupRequest(
    target=target, setting=setting, operators=[AskedOperator(making.relu(65).key, 1.0, making.relu(65))]))
exploration = Exploration.objects.create(
    operator=models.Miss.objects.get().operator, target=target, setting=setting, capability=target.capability,
    asked_at=timezone.now())
_, key = create_api_key(default_organisation(), "schemathesis", ["admin"])
models.ApiKey.objects.update(id=987_654_321)
print(json.dumps({
    "key": key,
    "path.key": place["operator"].key, "path.number": made.implementation.pk, "path.id": exploration.pk,
    "path.sha256": made.implementation.artifact.sha256, "path.name": "kernel.so", "query.target": target.key,
    "query.setting": setting.key,
}))
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def served(deployment: Deployment, tmp_path: Path) -> Iterator[tuple[str, str, dict[str, object]]]:
    """A running server's address, a key with every scope, and names of what its catalogue has."""
    known = json.loads(deployment.run("-c", SETUP))
    key = known.pop("key")
    with Stack(deployment.environment, workers=0, logs=tmp_path / "logs") as stack:
        yield stack.url, key, known


@pytest.mark.parametrize(
    ("parameters", "deployment", "phases"),
    [
        ("invented", "sqlite", "coverage of some"),
        pytest.param("invented", "sqlite", "coverage", marks=pytest.mark.nightly),
        pytest.param("known", "postgres", "coverage", marks=[pytest.mark.services, pytest.mark.nightly]),
        pytest.param("known", "postgres", "fuzzing", marks=[pytest.mark.services, pytest.mark.nightly]),
        pytest.param("invented", "sqlite", "fuzzing", marks=pytest.mark.nightly),
    ],
    indirect=["deployment"],
)
def test_no_request_is_answered_with_a_5xx_or_against_the_schema(served, parameters, phases, tmp_path):
    """Each value's borders; by day of the resources that jobs and operators ask for, nightly of all, on
    PostgreSQL too, and random ones."""
    some = ["--include-path-regex", SOME] if phases.endswith(SOME_OF) else []
    url, key, known = served
    lines = [f"{name!r} = {value!r}" for name, value in known.items()] if parameters == "known" else []
    config = tmp_path / "schemathesis.toml"
    config.write_text("\n".join(["[parameters]", *lines]))
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config), "run",
            f"{url}/api/v1/schema/?format=json", "--header", f"Authorization: Bearer {key}",
            "--checks", CHECKS, "--phases", phases.removesuffix(SOME_OF), *some,
            "--max-examples", "25", "--seed", "2026", "--no-color", "--request-timeout", "40",
        ],
        cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
    refused = re.search(r"Authentication failed: (\d+) operation", done.stdout)
    assert not refused or int(refused[1]) <= MAY_REFUSE, done.stdout[-6000:]
