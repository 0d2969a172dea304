"""The login of a user's client if neither caller nor environment gives one: from the user's file, or from a
sidecar."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from opatlas.client.cache.store import digest_of
from opatlas.conf import Misconfigured, conf
from opatlas.errors import CallerError

_URL = re.compile(r"https?://[^/\s]+(/\S*)?")
_KEY = re.compile(r"[\x21-\x7e]*")


def checked_address(url: str, key: str) -> tuple[str, str]:
    """A service's address and key in a form that can be sent; raises :class:`opatlas.errors.CallerError`."""
    url, key = url.strip().rstrip("/"), key.strip()
    if not _URL.fullmatch(url):
        raise CallerError(f"{url!r} is no service address; it looks like http://127.0.0.1:8000.")
    if not _KEY.fullmatch(key):
        raise CallerError("An API key is made of printable characters, without blanks.")
    return url, key


def is_readable_on_its_way(url: str) -> bool:
    """Whether strangers may read what is sent: plain http to a host other than this machine, a private
    address or a name without a dot (which can have no certificate)."""
    import ipaddress
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
    except ValueError:
        return False  # nobody can be asked there
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme != "http" or host.endswith(".localhost"):
        return False
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host


def service_of(url: str, key: str) -> bytes:
    """16 bytes that identify a service and who asks it."""
    return digest_of([url, hashlib.sha256(key.encode()).hexdigest()])


def card_path(socket: Path) -> Path:
    """The file beside a sidecar's socket that names its login."""
    return socket.with_name(socket.name + ".json")


def service_at(socket: Path) -> bytes | None:
    """The :func:`service_of` of the sidecar at a socket; None if there is none."""
    try:
        return bytes.fromhex(json.loads(card_path(socket).read_bytes())["service"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def config_path() -> Path:
    """``opatlas/config.toml`` in the user's configuration folder."""
    return conf().config / "config.toml"


def read_login() -> tuple[str, str]:
    """The address and key of ``opatlas login``; empty if there are none."""
    import tomllib

    try:
        found = tomllib.loads(config_path().read_text())
    except FileNotFoundError:
        return "", ""
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{config_path()} cannot be read: {error}.") from error
    return str(found.get("url", "")), str(found.get("key", ""))


def write_login(url: str, key: str) -> None:
    """Write them for this user alone (mode 0600)."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_suffix(".part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(f"url = {json.dumps(url)}\nkey = {json.dumps(key)}\n")
    part.replace(path)
