"""A process that answers hits until it is killed: ``python -m tests.hostile.journalling [SECONDS BETWEEN]``.

Prints ``ready``, then one line for every lookup that it answered, after the answer.
"""

from __future__ import annotations

import sys
import time


def main(between_s: float) -> None:
    import django

    django.setup()
    from catalog import models
    from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup
    from catalog.registry import default_organisation

    target, setting = models.Target.objects.get(), models.Setting.objects.get()
    request = LookupRequest(
        target=target,
        setting=setting,
        operators=[AskedOperator(row.key) for row in models.Operator.objects.all()],
        organisation=default_organisation(),
        job="killed",
    )
    print("ready", flush=True)
    while lookup(request).hits:
        sys.stdout.write("answered\n")
        sys.stdout.flush()
        time.sleep(between_s)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:] or ["0"]))
