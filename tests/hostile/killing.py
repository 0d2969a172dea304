"""A command begun and killed, again and again: ``python -m tests.hostile.killing COMMAND …``.

Each is a fork of a process that has Django set up. It kills itself after its first write, then after its
second, fourth and so on, until one comes to its end; and once right after its first commit. So the places are
the same every time, and none is before or after the work. Ends with code 1 where nothing was killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

WRITES = ("INSERT", "UPDATE", "DELETE")


def main(name: str, *options: str) -> int:
    import django
    from django.core.management import call_command, get_commands, load_command_class

    django.setup()
    command = load_command_class(get_commands()[name], name)

    def killed(when: Callable[..., Any], *place: int) -> bool:
        child = os.fork()
        if child == 0:
            with when(*place):
                call_command(command, *options)
            os._exit(0)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])

    writes = 1
    while killed(after_writes, writes):
        writes *= 2
    return 0 if writes > 1 and killed(after_commit) else 1


def after_writes(most: int) -> Any:
    from django.db import connection

    done = 0

    def count(execute: Any, sql: str, *rest: Any) -> Any:
        nonlocal done
        result = execute(sql, *rest)
        done += sql.lstrip().upper().startswith(WRITES)
        if done >= most:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return connection.execute_wrapper(count)


def after_commit() -> Any:
    from unittest import mock

    from django.db import connection

    commit = connection._commit

    def and_die() -> None:
        commit()
        os.kill(os.getpid(), signal.SIGKILL)

    return mock.patch.object(connection, "_commit", and_die)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
