"""The key that signs artifacts is out of the web process's reach, and not missed there."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_serving_never_opens_the_signing_key_and_works_without_one(deploy, tmp_path):
    key = tmp_path / "worker" / "key.pem"
    deployment = deploy(OPATLAS_SIGNING_KEY=str(key))
    said = json.loads(deployment.run("-m", "tests.hostile.serving_without_key").splitlines()[-1])
    assert said["statuses"] == [200] * 9
    assert said["opened"] == 0
    assert said["opened_by_a_worker"] > 0  # the test would have seen it
    assert key.exists()


@pytest.mark.parametrize("package", ["catalog", "dashboard", "tuning"])
def test_no_other_module_reads_a_private_key(package):
    """Only ``tuning.explore.signing`` does: for ``results`` (what workers publish with), for what is
    brought in from other machines, for three commands."""
    reads = re.compile(r"\b(read_key|new_key|load_pem_private_key|signing_key\(\))")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / package).rglob("*.py")
        if reads.search(path.read_text())
    }
    workers = {
        "tuning/explore/signing.py",
        "tuning/explore/results.py",
        "tuning/importing.py",
        "tuning/management/commands/plan.py",
        "tuning/management/commands/sign_artifacts.py",
        "tuning/management/commands/train_predictor.py",
    }
    assert found == (workers if package == "tuning" else set())
