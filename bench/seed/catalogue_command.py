"""``python -m bench.seed catalogue --implementations N [--operators FILE]``: for benches only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bench.seed import implementations as synthetic
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation, register_setting, register_target
from opatlas import identity


class Command(BaseCommand):
    help = (
        "Fill a database of its own with SYNTHETIC implementations (invented, never measured) for this "
        "machine's target. The last line printed is JSON: an API key, the target, the setting."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--implementations", type=int, required=True)
        parser.add_argument(
            "--operators", type=Path, help="JSON list of canonical operators that get some too"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        operators = []
        if options["operators"]:
            documents = json.loads(options["operators"].read_text())
            operators = [identity.Operator.from_json(document) for document in documents]
        hardware = identity.detect_target()
        target = register_target(hardware)
        setting = register_setting(identity.default_setting(hardware))
        count = options["implementations"]
        if count < len(operators) * len(synthetic.ROUTES):
            raise CommandError(
                f"{len(operators)} operators need {len(operators) * len(synthetic.ROUTES)} or more."
            )
        try:
            for done in synthetic.seed(count, operators, target, setting):
                if done % 100_000 == 0:
                    self.stderr.write(f"{done:,} of {count:,}")
        except synthetic.NotEmpty as error:
            raise CommandError(str(error)) from error
        synthetic.analyse()
        _, text = create_api_key(default_organisation(), "synthetic", ["lookup"])
        self.stdout.write(json.dumps({"key": text, "target": target.key, "setting": setting.key}))
