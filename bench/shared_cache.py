"""A list of operators looked up through one cache by many processes at once; each answer is held against what
the service says itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opatlas.client import RestClient
from opatlas.identity import Operator, Setting

PROCESSES = 8
MOST_ASKED = 1024
"""Of one request to the service."""
TIMEOUT_S = 60.0

_READER = """
import json, sys
from pathlib import Path
from opatlas.client import Client
from opatlas.identity import Operator, Setting
folder, url, key, share = sys.argv[1:]
said = json.loads((Path(folder) / "list.json").read_text())
begin = int(float(share) * len(said["operators"]))
turned = said["operators"][begin:] + said["operators"][:begin]
setting = said["setting"] and Setting.from_json(said["setting"])
found = {}
with Client(url, key, setting=setting, cache=Path(folder) / "cache", accepts={}, timeout_s=60) as client:
    for begin in range(0, len(turned), 10):
        for answer in client.lookup_all([Operator.from_json(one) for one in turned[begin : begin + 10]]):
            found[answer.key] = answer.to_json()
print(json.dumps([found, client.counts]))
"""


def ask_by_many(
    url: str, key: str, operators: Sequence[Operator], folder: Path, setting: Setting | None = None
) -> list[tuple[dict[str, Any], dict[str, int]]]:
    """Each process begins at another place of the list. For each what it was answered by operator, as JSON,
    and its client's counts; the cache lies in ``folder``."""
    said = {
        "operators": [operator.to_json() for operator in operators],
        "setting": setting.to_json() if setting is not None else None,
    }
    (folder / "list.json").write_text(json.dumps(said))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _READER, str(folder), url, key, str(number / PROCESSES)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    said_by = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"Processes ended with {[process.returncode for process in running]}.")
    return [tuple(json.loads(text)) for text in said_by]


def truth(
    url: str, key: str, operators: Sequence[Operator], setting: Setting | None = None
) -> dict[str, dict[str, Any]]:
    """What the service answers of each, as clients ask, past every cache."""
    keys = list(dict.fromkeys(operator.key for operator in operators))
    with RestClient(url, key, setting=setting, timeout_s=TIMEOUT_S) as rest:
        portions = [keys[begin : begin + MOST_ASKED] for begin in range(0, len(keys), MOST_ASKED)]
        replies = [rest.ask([{"key": key} for key in portion], include=["evidence"]) for portion in portions]
    return {one.key: one.to_json() for reply in replies for one in reply.answers}


def differing(
    answers: Sequence[dict[str, Any]], told: dict[str, dict[str, Any]]
) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
    """Answers that are not the service's in every field, with the service's."""
    for found in answers:
        for key in found.keys() | told.keys():
            if found.get(key) != told.get(key):
                yield found.get(key), told.get(key)


def measure_shared(url: str, key: str, operators: Sequence[Operator]) -> dict[str, Any]:
    """How many answers differ (none should), and how many came from where."""
    with tempfile.TemporaryDirectory() as folder:
        asked = ask_by_many(url, key, operators, Path(folder))
    told = truth(url, key, operators)
    counts = {name: sum(counted[name] for _, counted in asked) for name in asked[0][1]}
    wrong = list(differing([found for found, _ in asked], told))
    return {"operators": len(told), "processes": PROCESSES, "differing": len(wrong)} | counts
