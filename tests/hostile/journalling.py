"""A process that answers hits until it is killed: ``python -m tests.hostile.journalling``.

Prints ``ready``, then one line for every lookup that it answered, after the answer.
"""

from __future__ import annotations

import sys


def main() -> None:
    import django

    django.setup()
    from catalog import models, services

    target, setting = models.Target.objects.get(), models.Setting.objects.get()
    request = services.LookupRequest(
        target=target,
        setting=setting,
        operators=[services.Asked(row.key) for row in models.Operator.objects.all()],
        organisation=services.default_organisation(),
        job="killed",
    )
    print("ready", flush=True)
    while services.lookup(request).hits:
        sys.stdout.write("answered\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
