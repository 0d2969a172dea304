"""``python -m tests.dashboard.stories``: walk the stories, take their pictures anew, and write the page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.dashboard.stories.tales import PAGE, written
from tests.dashboard.stories.telling import ASKED


def main() -> int:
    PAGE.write_text(written())
    tests = str(Path(__file__).parent)
    # One after the other: what is timed is not timed beside another.
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", tests]
    return subprocess.run(command, env={**os.environ, ASKED: "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
