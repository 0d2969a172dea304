"""``python -m opatlas.cli``: the command ``opatlas``."""

from opatlas.cli.commands import main

if __name__ == "__main__":
    main()
