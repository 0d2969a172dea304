"""``python -m bench.seed catalogue|service …``: an empty database filled with invented rows, for benches."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django

    django.setup()
    from bench.seed import catalogue_command, service_command

    commands = {"catalogue": catalogue_command.Command, "service": service_command.Command}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(f"python -m bench.seed takes one of: {', '.join(commands)}.")
    commands[sys.argv[1]]().run_from_argv(["bench.seed", *sys.argv[1:]])


if __name__ == "__main__":
    main()
