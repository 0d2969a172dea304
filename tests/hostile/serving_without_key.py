"""Lookups, artifacts and pages, noting every attempt to open the signing key. Prints what it saw."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

opened: list[str] = []
KEY = os.environ["OPATLAS_SIGNING_KEY"]


def note(event: str, arguments: tuple) -> None:
    if event == "open" and str(arguments[0]) == KEY:
        opened.append(KEY)


sys.addaudithook(note)

import django  # noqa: E402

django.setup()

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.test import Client  # noqa: E402

import dashboard.wsgi  # noqa: E402, F401
from catalog.best.publishing import publish  # noqa: E402
from catalog.people.keys import create_api_key  # noqa: E402
from catalog.registry import default_organisation, register_operator, register_setting, register_target  # noqa: E402
from tests.catalog import making  # noqa: E402

operator = making.relu(64)
folder = Path(tempfile.mkdtemp())
files = making.write_file(folder, "kernel.so", b"code")
place = {
    "operator": register_operator(operator),
    "target": register_target(making.TARGET),
    "setting": register_setting(making.SETTING),
}
made = making.new_result(
    place, "tvm", 2.0, kind="c-abi", needs={}, files=files, folder=folder,
    signing_key=Ed25519PrivateKey.generate(),
)  # fmt: skip
published = publish(made)
_, key = create_api_key(default_organisation(), "job", ["admin"])
client = Client(headers={"host": "localhost"})
api = {"headers": {"Authorization": f"Bearer {key}", "host": "localhost"}, "content_type": "application/json"}
sha256 = published.implementation.artifact.sha256
statuses = [
    client.post(
        "/api/v1/lookup",
        {
            "target": place["target"].key,
            "setting": place["setting"].key,
            "operators": [{"key": operator.key}],
        },
        **api,
    ).status_code,
    *(
        client.get(path, **api).status_code
        for path in (
            f"/api/v1/artifacts/{sha256}",
            f"/api/v1/artifacts/{sha256}/files/kernel.so",
            "/api/v1/signers/",
            "/api/v1/schema/",
        )
    ),
    client.post(
        f"/api/v1/implementations/{published.implementation.pk}/revoke", {"reason": "a test"}, **api
    ).status_code,
]
client.force_login(User.objects.create_superuser("admin"))
statuses += [client.get(path).status_code for path in ("/", "/operators/", f"/operators/{operator.key}/")]
seen = len(opened)

from tuning.explore.signing import signing_key  # noqa: E402

signing_key()  # what a worker does: the hook does see it
print(json.dumps({"statuses": statuses, "opened": seen, "opened_by_a_worker": len(opened)}))
