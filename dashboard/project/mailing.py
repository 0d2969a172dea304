"""Where mail goes: Django's settings from one URL. Knows no Django: settings import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dj_email_url

from opatlas.conf import Misconfigured

_TIMEOUT_S = 10


def mail_settings(url: str, folder: Path) -> dict[str, Any]:
    """``EMAIL_…`` from ``submission://user:password@host:587`` (``smtp://``, ``console://``); without a URL
    every mail becomes a file in ``folder``, so that none is lost. Raises :class:`Misconfigured` for a
    URL of another kind. A mail server that does not answer is waited for 10 s (``?timeout=30`` says
    otherwise)."""
    if not url:
        return {
            "EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "EMAIL_FILE_PATH": str(folder),
        }
    found = dj_email_url.parse(url)
    if "EMAIL_BACKEND" not in found:
        kinds = ", ".join(sorted(dj_email_url.SCHEMES))
        raise Misconfigured(
            f"OPATLAS_EMAIL_URL begins with one of {kinds} and ://, not with {url.split(':')[0]!r}."
        )
    if found["EMAIL_TIMEOUT"] is None:
        found["EMAIL_TIMEOUT"] = _TIMEOUT_S
    return dict(found)
