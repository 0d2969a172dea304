"""What a service answers to the same lookups: ``python -m tests.hostile.lookups KEY``.

Prints one JSON line for each answer: lookups of everything that ``backed_up`` published, manifests and files.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from tests.catalog import making

LENGTHS = (64, 65, 66)


def publish_some(folder: Path) -> str:
    """A catalogue that is served: recipes and what was compiled; gives an API key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from catalog.best.publishing import publish
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation, register_operator, register_setting, register_target

    place = {"target": register_target(making.TARGET), "setting": register_setting(making.SETTING)}
    key = Ed25519PrivateKey.generate()
    for length in LENGTHS:
        here = {"operator": register_operator(making.relu(length)), **place}
        publish(making.new_result(here, "eager", 1.0, signing_key=key))
        files = making.write_file(folder / str(length), "kernel.so", f"code of {length}".encode() * 1000)
        made = {"kind": "c-abi", "needs": {}, "files": files, "folder": folder / str(length)}
        publish(making.new_result(here, "tvm", 2.0, signing_key=key, **made))
    return create_api_key(default_organisation(), "backed up", ["lookup"])[1]


def main(key: str) -> None:
    from django.test import Client

    client = Client(SERVER_NAME="localhost", headers={"Authorization": f"Bearer {key}"})
    asked: dict[str, Any] = {
        "target": making.TARGET.to_json(),
        "setting": making.SETTING.to_json(),
        "operators": [{"graph": making.relu_json(length)} for length in (*LENGTHS, 99)],
        "include": ["manifest"],
        "job": "asked",
    }
    answer = client.post("/api/v1/lookup", asked, "application/json")
    assert answer.status_code == 200, answer.content
    print(json.dumps(answer.json()))
    for sha256 in sorted(answer.json()["manifests"]):
        manifest = client.get(f"/api/v1/artifacts/{sha256}")
        print(json.dumps(manifest.json()))
        for file in manifest.json()["files"]:
            sent = b"".join(client.get(file["url"]))
            print(json.dumps([file["name"], hashlib.sha256(sent).hexdigest()]))


if __name__ == "__main__":
    import django

    django.setup()
    if sys.argv[1] == "publish":
        print(publish_some(Path(sys.argv[2])))
    else:
        main(sys.argv[1])
