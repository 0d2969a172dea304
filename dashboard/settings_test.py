"""Settings of the tests: a state folder of their own, gone when the process ends."""

import os
import tempfile

_home = tempfile.TemporaryDirectory(prefix="opatlas-test-")
os.environ["OPATLAS_HOME"] = _home.name
os.environ.setdefault("OPATLAS_SECRET_KEY", "only-for-tests-" + "x" * 40)

from dashboard.settings import *  # noqa: E402, F403

ALLOWED_HOSTS = ["*"]
# Tests ask and mistype as fast as they can, all from one address; those of the limits set their own.
OPATLAS_RATES = dict.fromkeys(("LOOKUP", "API", "ADDRESS", "REFUSED"), "off")
OPATLAS_LOGIN_TRIES = 1_000_000
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):  # noqa: F405
    # A file, as in use: the in-memory database that Django would take lets no two threads wait
    # for each other.
    DATABASES["default"]["TEST"] = {"NAME": OPATLAS_HOME / "test.sqlite3"}  # noqa: F405
