"""Celery's application. Messages are doorbells: they carry nothing, and losing one is harmless.

``celery -A tuning worker`` starts a worker for this machine: one pool child, which serves the queue of the
machine's capability (``cpu.zen5``). Without BROKER_URL the broker is a folder below OPATLAS_HOME.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from celery import Celery

from catalog.conf import conf as catalog_conf
from catalog.own_files import keep_to_ourselves
from tuning.conf import conf

if "celery" in Path(sys.argv[0]).parts[-2:]:  # Celery's command imports this before all else of ours
    keep_to_ourselves()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
# Django's checks import every page; a worker serves none and starts faster without.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

WAKE = "opatlas.wake"  # the doorbell's task, rung by name: who rings need not import what a worker runs
BELL_EXPIRES_S = 30  # a doorbell older than this wakes nobody: the leader has rung again since


def broker_options(broker_url: str, home: Path) -> dict[str, Any]:
    """Celery settings for a broker URL; an empty one means the embedded file-system broker below ``home``."""
    if broker_url:
        options: dict[str, Any] = {}
        if broker_url.startswith(("redis", "rediss", "unix")):
            # A wake-up can outlast the default of an hour; a bell rung twice would be harmless, though.
            options = {"visibility_timeout": 24 * 3600, "socket_connect_timeout": 5, "socket_keepalive": True}
        return {"broker_url": broker_url, "broker_transport_options": options}
    folder = home / "broker"
    for name in ("bells", "control", "taken"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return {
        "broker_url": "filesystem://localhost",
        "broker_transport": "tuning.doorbell.filesystem_broker.Transport",
        "broker_transport_options": {
            "data_folder_in": str(folder / "bells"),
            "data_folder_out": str(folder / "bells"),
            "control_folder": str(folder / "control"),
            "taken_folder": str(folder / "taken"),
            "polling_interval": 0.1,
        },
    }


app = Celery("opatlas")
app.conf.update(
    **broker_options(conf().broker_url, catalog_conf().home),
    accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    result_backend=None,
    task_acks_late=True,  # with prefetch 1: no second bell is hoarded while the first one's work goes on
    task_publish_retry=False,
    worker_concurrency=1,  # one measurement at a time per machine
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
    worker_proc_alive_timeout=300,  # the pool child warms its compilers before it says that it is up
    worker_lost_wait=1,  # a pool child that was killed has nothing more to say: go on with its successor
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_connection_timeout=2,
    task_create_missing_queues=True,
    enable_utc=True,
)
app.conf.include = ["tuning.tasks", "tuning.worker.celery_signals"]
