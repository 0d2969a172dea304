"""What was there before, to be run beside what is there now: ``tests/data/versions.tar.xz``.

``7fa76a5``: all that a process of that version imports which answers lookups and hands out artifacts (no
pages), and its client (REST calls alone). ``b73e047``: what the first client with a cache imports. Each is
what ``git archive`` gives, less what such a process never opened.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.databases import ROOT

SERVE = """
import sys, types
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.urls import include, path, re_path
import dashboard.settings as settings
apps = settings.INSTALLED_APPS
admin = "django.contrib.admin"
settings.INSTALLED_APPS = [f"{admin}.apps.SimpleAdminConfig" if app == admin else app for app in apps]
settings.ROOT_URLCONF = "only_rest"
from django.core.wsgi import get_wsgi_application
application = get_wsgi_application()
from catalog.api.errors import nothing_here
only_rest = sys.modules["only_rest"] = types.ModuleType("only_rest")
only_rest.urlpatterns = [path("api/v1/", include("catalog.api.urls")), re_path("", nothing_here)]
WSGIRequestHandler.log_message = lambda *_: None
server = ThreadedWSGIServer(("127.0.0.1", 0), WSGIRequestHandler)
server.daemon_threads = True
server.set_app(application)
print(server.server_port, flush=True)
server.serve_forever()
"""


def unpack(folder: Path) -> Path:
    with tarfile.open(ROOT / "tests/data/versions.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def start(version: Path, script: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """A process that has nothing of this version."""
    inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=version, env=inherited | {"PYTHONPATH": str(version), "OPATLAS_LOG": "ERROR"} | variables,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(version: Path, script: str, *arguments: str, **variables: str) -> str:
    """To its end; gives what it printed."""
    process = start(version, script, *arguments, **variables)
    said, complaints = process.communicate(timeout=120)
    assert process.returncode == 0, complaints[-3000:]
    return said
