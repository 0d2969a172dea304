"""A service whose database lies on a disk that fills up: ``python -m tests.hostile.full_disk DISK``.

Prints, as JSON lines, what a lookup of something new and a page are answered before, while the disk is full,
and after. Its environment says where the database is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.catalog import making
from tests.disks import fill


def main(disk: Path) -> None:
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client

    from catalog.models import Membership, Role
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation

    _, secret = create_api_key(default_organisation(), "test", ["lookup"])
    user = User.objects.create_user("ada")
    Membership.objects.create(user=user, organisation=default_organisation(), role=Role.ADMIN)
    client = Client(raise_request_exception=False, SERVER_NAME="localhost")
    client.force_login(user)

    def ask(first: int) -> None:
        """New ones, so that something is written."""
        for length in range(first, first + 60):
            asked = {"target": making.TARGET.to_json(), "operators": [{"graph": making.relu_json(length)}]}
            headers = {"Authorization": f"Bearer {secret}"}
            _tell("lookup", client.post("/api/v1/lookup", asked, "application/json", headers=headers))

    ask(8)
    filler = fill(disk)
    ask(1000)
    for _ in range(10):
        _tell("page", client.post("/keys/create/", {"name": "x", "scopes": "lookup"}))
    filler.unlink()
    connection.close()
    ask(2000)


def _tell(what: str, answer: Any) -> None:
    if "json" in answer["Content-Type"]:
        said = answer.json().get("error", "")
    else:
        said = answer.content.decode().partition("<h1>")[2][:200]
    print(json.dumps([what, answer.status_code, said]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
