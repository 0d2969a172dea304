#!/usr/bin/env python
"""Django's command line."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    from opatlas.conf import Misconfigured

    try:
        from catalog.own_files import keep_to_ourselves

        keep_to_ourselves()
        if sys.argv[1:2] == ["serve"]:
            from dashboard.run.serving import main as serve

            serve(sys.argv[2:])
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
    except Misconfigured as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
