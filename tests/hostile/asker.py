"""A process that asks with many threads at once: ``python -m tests.hostile.asker KEY THREADS START``.

Every thread posts one lookup of the same operators, each in an order of its own, at the time START. Prints
one JSON line: the states that were answered.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time

from tests.catalog import making

LENGTHS = range(1, 11)


def main(key: str, threads: int, start: float) -> None:
    import django

    django.setup()
    from django.db import connection
    from django.test import Client

    answers: list[list[str]] = []

    def ask(number: int) -> None:
        lengths = list(LENGTHS)
        random.Random(f"{os.getpid()} {number}").shuffle(lengths)
        body = {
            "target": making.TARGET.to_json(),
            "operators": [{"graph": making.relu_json(length)} for length in lengths],
            "job": "together",
        }
        time.sleep(max(0.0, start - time.time()))
        try:
            response = Client(raise_request_exception=False).post(
                "/api/v1/lookup",
                body,
                content_type="application/json",
                headers={"Authorization": f"Bearer {key}", "Host": "localhost"},
            )
            results = response.json().get("results")
            answers.append([item["state"] for item in results] if results else [response.content.decode()])
        finally:
            connection.close()

    running = [threading.Thread(target=ask, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
