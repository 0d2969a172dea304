"""What happens when a Celery worker starts and stops."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
import warnings
from typing import Any

from celery import signals
from celery.platforms import SecurityWarning
from kombu import Queue

from catalog import alive
from tuning.worker import stopping

logger = logging.getLogger(__name__)

# A person wants to read what is explored, not every doorbell.
logging.getLogger("tuning").setLevel(logging.INFO)
for _logger in ("celery.worker.strategy", "celery.app.trace", "celery.worker.consumer.mingle"):
    logging.getLogger(_logger).setLevel(logging.WARNING)
# Containers run as root; what a worker must not trust runs in its sandbox.
warnings.filterwarnings("ignore", category=SecurityWarning)

_PR_SET_PDEATHSIG = 1
_name = ""  # this worker's; its pool child is a fork and has it too


@signals.celeryd_init.connect
def choose_queue(sender: str, instance: Any, conf: Any, options: dict[str, Any], **kwargs: Any) -> None:
    """Serve the queue of this machine's capability, unless ``-Q`` names others."""
    from tuning.worker import process as worker

    _refuse_newer_database()
    global _name
    _name = f"{sender}#{os.getpid()}"
    if not options.get("queues"):
        capability = worker.make_tools().target().capability
        conf.task_queues = [Queue(capability)]
        conf.task_default_queue = capability


@signals.worker_process_init.connect
def start(**kwargs: Any) -> None:
    """In the pool child, before it says that it is up: become a worker."""
    from tuning.worker.process import start_worker

    _outlive_the_forking_thread()
    # Ctrl-C in a terminal reaches every process: the main one tells us what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start_worker(_name)


@signals.worker_process_shutdown.connect
def stop(**kwargs: Any) -> None:
    """In the pool child, as its last act: give everything back."""
    from tuning.worker.process import stop_worker

    stop_worker()


@signals.worker_init.connect
def show_that_it_lives(**kwargs: Any) -> None:
    """In the main process, by a thread: the loop that takes messages rests while the broker is away, which is
    no reason to restart an exploring worker."""
    threading.Thread(target=_beat, name="alive", daemon=True).start()


def _beat() -> None:
    while True:
        alive.beat("celery")
        time.sleep(alive.EVERY_S)


@signals.worker_shutting_down.connect
def ask_to_stop(**kwargs: Any) -> None:
    """In the main process: the first TERM or INT."""
    stopping.ask()


def _refuse_newer_database() -> None:
    import django
    from django.db import connection

    django.setup()
    from catalog.versions import NewerDatabase, refuse_newer_database

    try:
        refuse_newer_database()
    except NewerDatabase as refused:
        # No Exception: Celery logs those of its signals' receivers, and goes on without them.
        print(refused, file=sys.stderr, flush=True)
        raise SystemExit(os.EX_CONFIG) from None
    finally:
        connection.close()  # the pool's child is a fork


def _outlive_the_forking_thread() -> None:
    """Undo Celery's "die with your parent". The kernel means the parent *thread*, and with a broker without
    an event loop (the embedded one) children are forked by a thread that ends first at a clean stop. The
    worker watches for its parent's end itself (``WorkerProcess._pulse``)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, 0)
