"""Redis GET of a value as large as an answer, by Redis's own bench: what a user would compare with."""

from __future__ import annotations

import csv
import shutil
import subprocess
from urllib.parse import urlsplit

from bench.servers import MissingProgram, private_redis
from bench.wire.load import CONNECTIONS

REQUESTS = 100_000


def measure_redis(size_bytes: int) -> int | None:
    """Requests a second over as many connections as wrk has; None where Redis is not installed."""
    program = shutil.which("redis-benchmark")
    if program is None:
        print("NOT MEASURED: redis-benchmark is missing (apt-get install redis-server).")
        return None
    try:
        with private_redis() as url:
            command = [
                *(program, "-h", "127.0.0.1", "-p", str(urlsplit(url).port), "-t", "set,get"),
                *("-d", str(size_bytes), "-c", str(CONNECTIONS), "-n", str(REQUESTS), "--csv"),
            ]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except MissingProgram as missing:
        print(missing)
        return None
    rows = {row[0]: float(row[1]) for row in csv.reader(said.splitlines()) if row and row[0] in ("GET",)}
    return round(rows["GET"])
