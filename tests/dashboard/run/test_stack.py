"""The service's processes: the web server imports while the database is prepared, and waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dashboard.run.stack import ROOT

MORE_THAN_A_PIPE_HOLDS = bytes(1 << 21)


def test_the_web_server_answers_only_once_the_database_is_prepared(tmp_path: Path) -> None:
    waits_on, done = os.pipe()
    web = subprocess.Popen(
        [sys.executable, "-c", "import dashboard.wsgi; print('answers')"],
        cwd=ROOT,
        env={**os.environ, "OPATLAS_HOME": str(tmp_path), "OPATLAS_WAITS_ON": str(waits_on)},
        pass_fds=(waits_on,),
        stdout=subprocess.PIPE,
    )
    os.close(waits_on)
    # All of it is taken only by somebody who waits for the end; who does not takes what a pipe holds at most.
    assert os.write(done, MORE_THAN_A_PIPE_HOLDS) == len(MORE_THAN_A_PIPE_HOLDS)
    os.close(done)
    assert web.communicate(timeout=60)[0] == b"answers\n"
