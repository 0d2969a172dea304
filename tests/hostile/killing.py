"""A command begun and killed, again and again: ``python -m tests.hostile.killing LONGEST_S COMMAND …``.

Each is a fork of a process that has Django set up, so that it is killed within its work and not while it
imports. Ends with code 1 where no kill came before the command's end.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

TIMES = 4


def main(longest_s: float, name: str, *options: str) -> int:
    import django
    from django.core.management import call_command, get_commands, load_command_class

    django.setup()
    command = load_command_class(get_commands()[name], name)
    moments = random.Random(7)  # a seed, so that a failure can be had again
    in_its_middle = 0
    for _ in range(TIMES):
        child = os.fork()
        if child == 0:
            call_command(command, *options)
            os._exit(0)
        time.sleep(longest_s * moments.random())
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        in_its_middle += os.WIFSIGNALED(status)
    return 0 if in_its_middle else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *sys.argv[2:]))
