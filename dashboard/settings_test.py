"""Settings of the tests: a state folder of their own, gone when the process ends."""

import os
import tempfile
from pathlib import Path

_home = tempfile.TemporaryDirectory(prefix="opatlas-test-")
os.environ["OPATLAS_HOME"] = _home.name
os.environ.setdefault("OPATLAS_SECRET_KEY", "only-for-tests-" + "x" * 40)
# They ask and mistype as fast as they can, all from one address; those of the limits set their own.
os.environ.update({f"OPATLAS_RATE_{name}": "off" for name in ("LOOKUP", "API", "ADDRESS", "REFUSED")})
os.environ["OPATLAS_LOGIN_TRIES"] = "1000000"

from dashboard.settings import *  # noqa: E402, F403

ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):  # noqa: F405
    # A file, as in use: the in-memory database that Django would take lets no two threads wait
    # for each other.
    DATABASES["default"]["TEST"] = {"NAME": Path(_home.name) / "test.sqlite3"}  # noqa: F405
