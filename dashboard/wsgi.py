"""The WSGI entry point."""

import gc
import os
import sys
from pathlib import Path

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

gc.disable()  # what is imported stays: looking for garbage in it would be a quarter of the start
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
application = get_wsgi_application()
get_resolver().url_patterns  # noqa: B018 - imports every view, for which the first request would wait
from catalog.versions import NewerDatabase, refuse_newer_database  # noqa: E402 - of Django's models

gc.freeze()
gc.enable()
if waits_on := os.environ.get("OPATLAS_WAITS_ON"):
    # A pipe of the process that started this one, which prepares the database meanwhile: it ends when that is
    # done. A web server that is started again finds it ended.
    Path(f"/dev/fd/{waits_on}").read_bytes()
try:
    refuse_newer_database()
except NewerDatabase as refused:
    sys.exit(str(refused))  # with the sentence alone
