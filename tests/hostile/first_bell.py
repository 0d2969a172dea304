"""A process that rings its first bell: ``python -m tests.hostile.first_bell``.

After each class that the bell's thread makes, and before that class has its name, it asks what Django asks in
any thread at any time: is this callable? Prints one JSON line: the bells that lie in the embedded broker, and
what the questions raised.
"""

from __future__ import annotations

import builtins
import json
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


def main() -> None:
    import django

    django.setup()
    from catalog.conf import conf
    from tuning.doorbell.bell import bell

    raised: set[str] = set()

    def ask(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_return" and argument is builtins.__build_class__:
            try:
                isinstance(type("Unseen", (), {})(), Callable)  # a new type: no answer is remembered for it
            except NameError as error:
                raised.add(str(error))

    threading.setprofile(ask)  # in threads that start from now on
    bell.ring({"cpu.zen5"})
    bell.flush(60)
    rung = len(list((conf().home / "broker" / "bells").glob("*.cpu.zen5.msg")))
    print(json.dumps({"rung": rung, "raised": sorted(raised)}))


if __name__ == "__main__":
    main()
