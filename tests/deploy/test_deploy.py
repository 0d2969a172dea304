"""What deploys the service is what its tools take, and names what there is in the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.databases import ROOT
from tests.services import NOT_TESTED, MissingProgram, or_skip

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
PARTS = {"web", "worker", "gpu-worker", "courier", "postgres", "redis"}


def needs(program: str, package: str) -> str:
    def find() -> str:
        if found := shutil.which(program):
            return found
        raise MissingProgram(f"{NOT_TESTED}: {program} (apt-get install {package})")

    return or_skip(find)


def checked(command: list[str | Path], **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def installed(unit: Path, folder: Path) -> Path:
    """The unit as it stands, its programs found in this tree: systemd looks whether there are any."""
    text = unit.read_text().replace("/opt/opatlas/.venv/bin", str(Path(sys.executable).parent))
    # A template is verified as one of its instances.
    copy = folder / unit.name.replace("@.", "@0.")
    copy.write_text(text.replace("/opt/opatlas", str(ROOT)))
    return copy


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_each_unit_without_a_word(unit: Path, tmp_path: Path) -> None:
    program = needs("systemd-analyze", "systemd")
    shutil.copy(DEPLOY / "systemd/opatlas.target", tmp_path)
    said = checked([program, "verify", "--recursive-errors=no", installed(unit, tmp_path)])
    assert [line for line in said.splitlines() if "opatlas" in line] == []


def test_docker_compose_takes_the_file_and_asks_for_its_secrets(tmp_path: Path) -> None:
    program = needs("docker-compose", "docker-compose")
    command: list[str | Path] = [program, "-f", DEPLOY / "compose.yaml", "--profile", "gpu", "config"]
    config = yaml.safe_load(checked(command, POSTGRES_PASSWORD="p", OPATLAS_SECRET_KEY="k"))
    assert set(config["services"]) >= PARTS
    assert config["services"]["gpu-worker"]["environment"]["OPATLAS_DEVICE"] == "cuda:0"
    for name in ("web", "worker", "courier", "postgres", "redis"):
        assert config["services"][name]["restart"] == "always" and config["services"][name]["healthcheck"]
    bare = {name: text for name, text in os.environ.items() if name != "OPATLAS_SECRET_KEY"}
    refused = subprocess.run(command, capture_output=True, text=True, env={**bare, "POSTGRES_PASSWORD": "p"})
    assert refused.returncode and "OPATLAS_SECRET_KEY" in refused.stderr


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_kubernetes_takes_each_manifest(manifest: Path) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason=f"{NOT_TESTED}: kubernetes-validate"
    )
    documents = list(yaml.safe_load_all(manifest.read_text()))
    assert documents
    for document in documents:
        kubernetes_validate.validate(document, "1.37", strict=True)


def test_every_part_has_its_manifest() -> None:
    assert {path.stem for path in MANIFESTS} >= PARTS
    assert {path.stem for path in UNITS} >= {"opatlas-web", "opatlas-worker", "opatlas-gpu-worker@"}


def test_every_variable_that_deploying_sets_is_one_that_the_service_reads() -> None:
    """A misspelt one would change nothing, and say nothing."""
    known = set(re.findall(r"`([A-Z][A-Z_]+)`", (ROOT / "docs/configuration.md").read_text()))
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".md"]
    for path in files:
        named = set(re.findall(r"\b(?:OPATLAS_[A-Z_]+|DATABASE_URL|BROKER_URL)\b", path.read_text()))
        assert named <= known, path


def test_web_nodes_have_no_key_that_signs_and_workers_do() -> None:
    for path in MANIFESTS:
        assert ("OPATLAS_SIGNING_KEY" in path.read_text()) == ("worker" in path.stem), path
