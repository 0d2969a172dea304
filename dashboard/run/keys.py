"""The keys of an installation that lie in files: where, and how they are copied."""

from __future__ import annotations

import shutil
from pathlib import Path

from catalog.conf import conf as catalog_conf
from dashboard.conf import conf
from tuning.explore.signing import key_path


def key_places() -> dict[str, Path]:
    """Name → where it lies, or would lie. Keys given by the environment are the operator's to carry over."""
    home = catalog_conf().home
    given = {"secret_key": conf().secret_key, "vapid.pem": conf().vapid_key}
    places = {"secret_key": home / "secret_key", "vapid.pem": home / "vapid.pem"}
    return {name: path for name, path in places.items() if not given[name]} | {"signing_key.pem": key_path()}


def may_give_way(key: Path, to: bytes) -> bool:
    """Whether a key that lies there may be replaced: the secret key of a new home opens nothing yet."""
    return key.name == "secret_key" or not key.exists() or key.read_bytes() == to


def copy_private(source: Path, destination: Path) -> None:
    """A copy for its owner's eyes only, there whole or not at all."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    beside = destination.with_name(f".{destination.name}.copied")
    beside.touch(mode=0o600)
    shutil.copyfile(source, beside)
    beside.rename(destination)
