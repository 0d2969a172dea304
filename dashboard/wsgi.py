"""The WSGI entry point."""

import gc
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

gc.disable()  # what is imported stays: looking for garbage in it would be a quarter of the start
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")

from django.conf import settings  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.urls import get_resolver  # noqa: E402

from catalog.alive import beat  # noqa: E402
from catalog.conf import MAX_BODY_BYTES  # noqa: E402
from catalog.conf import conf as catalog_conf  # noqa: E402
from catalog.own_files import keep_to_ourselves  # noqa: E402
from catalog.versions import NewerDatabase, refuse_newer_database  # noqa: E402
from dashboard.conf import conf  # noqa: E402
from dashboard.operation import quick_lane  # noqa: E402
from dashboard.operation.bodies import BoundedBodies  # noqa: E402

keep_to_ourselves()
_django = get_wsgi_application()

from catalog.lookup.recalls import recalls  # noqa: E402 - there are rows from here on
from dashboard.operation.front import Front  # noqa: E402

# Times of what Django did belong to one answer: where they are wanted nothing is answered in front of it.
_front = Front(_django, recalls, 0 if conf().server_timing else catalog_conf().warm_bytes)
# The largest body is an uploaded model, with what its form has beside.
_answer = BoundedBodies(_front, settings.DATA_UPLOAD_MAX_MEMORY_SIZE + MAX_BODY_BYTES)


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Django's application; each answer is a sign of life, since the supervisor requests /healthz and counts
    any answer."""
    answer = _answer(environ, start_response)
    beat("web")
    return answer


quick_lane.lead(application, _front.quickly)
get_resolver().url_patterns  # noqa: B018 - imports every view, for which the first request would wait
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
