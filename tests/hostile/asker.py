"""Processes that ask with many threads at once: ``python -m tests.hostile.asker KEY PROCESSES THREADS``.

Every thread posts one lookup of the same operators, each in an order of its own. Prints one JSON line: the
states that were answered.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import threading
from typing import Any

from tests.catalog import making

LENGTHS = range(1, 11)


def main(key: str, processes: int, threads: int) -> None:
    import django

    django.setup()
    from django.urls import get_resolver

    get_resolver().url_patterns  # noqa: B018 - imports every view, for all of the processes
    fork = multiprocessing.get_context("fork")
    start, answers = fork.Barrier(processes * threads), fork.SimpleQueue()
    running = [fork.Process(target=ask_all, args=(key, threads, start, answers)) for _ in range(processes)]
    for process in running:
        process.start()
    print(json.dumps([answers.get() for _ in range(processes * threads)]))


def ask_all(key: str, threads: int, start: Any, answers: Any) -> None:
    running = [threading.Thread(target=ask, args=(key, number, start, answers)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def ask(key: str, number: int, start: Any, answers: Any) -> None:
    from django.db import connection
    from django.test import Client

    lengths = list(LENGTHS)
    random.Random(f"{os.getpid()} {number}").shuffle(lengths)
    body = {
        "target": making.TARGET.to_json(),
        "operators": [{"graph": making.relu_json(length)} for length in lengths],
        "job": "together",
    }
    start.wait()
    try:
        response = Client(raise_request_exception=False).post(
            "/api/v1/lookup",
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {key}", "Host": "localhost"},
        )
        results = response.json().get("results")
        answers.put([item["state"] for item in results] if results else [response.content.decode()])
    finally:
        connection.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
