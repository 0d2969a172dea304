"""``manage.py serve``: the whole service on this machine, until Ctrl-C.

No Django command: the web server, which imports every view, has begun before this process imports Django to
prepare the database.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time
from collections.abc import Sequence

from catalog.conf import conf as catalog_conf
from dashboard.conf import conf
from dashboard.run.stack import Stack, StackError, port_is_free
from dashboard.run.supervising import Supervisor
from tuning.conf import conf as tuning_conf
from tuning.measure.device.gpus import devices


def main(arguments: Sequence[str]) -> None:
    """Ends the process: with 0 when it was told to stop, else with a sentence."""
    started = time.monotonic()
    said = _parser().parse_args(arguments)
    # Service managers send SIGTERM, a closed terminal SIGHUP: both are treated like Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asks to be left alone
            signal.signal(number, signal.default_int_handler)
    if not port_is_free(said.port):
        sys.exit(f"Port {said.port} is in use; choose another, for example PORT={said.port + 1}.")
    _say(f"State in {catalog_conf().home}")
    try:
        # Who names a device wants a worker for that one.
        served = [] if tuning_conf().device else [gpu.name for gpu in devices()]
        with Stack(port=said.port, workers=said.workers, devices=served, prepare=prepare) as stack:
            _say(f"Opatlas is up after {time.monotonic() - started:.1f} s: {stack.url}")
            _say("The worker warms its compilers in the background. Ctrl-C stops everything.")
            Supervisor(stack, _say).run()
    except StackError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        _say("Stopped.")
        sys.exit(0)


def prepare() -> None:
    """Set Django up; migrate; make the first administrator and key, and show their secrets this one time."""
    import django

    django.setup()
    from django.contrib.auth import get_user_model

    from catalog.models import ApiKey, Membership, Role
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.migrating import migrate
    from tuning.measure.sandbox.tiers import best_tier

    migrate()
    users = get_user_model()
    if not users.objects.exists():
        password = secrets.token_urlsafe(12)
        admin = users.objects.create_superuser("admin", password=password)
        Membership.objects.create(user=admin, organisation=default_organisation(), role=Role.ADMIN)
        _say(f"First administrator: admin / {password}   (shown once)")
    if not ApiKey.objects.exists():
        scopes = ["lookup", "models", "operate", "admin"]
        _, secret = create_api_key(default_organisation(), "first key", scopes)
        _say(f"First API key: {secret}   (shown once)")
    if unsafe := best_tier().why_not_for(submitted=True, own=False):
        _say(f"Hand-written kernels are refused here: {unsafe}.")


def _parser() -> argparse.ArgumentParser:
    about = "Migrate, make a first administrator and API key, and run the web server and workers."
    parser = argparse.ArgumentParser(prog="manage.py serve", description=about)
    parser.add_argument("--port", type=int, default=conf().port)
    parser.add_argument("--workers", type=int, default=1)
    return parser


def _say(line: str) -> None:
    print(line, flush=True)
