"""``manage.py demo``: one finite run of the main job on a real model (``make demo``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.commands import QuickCommand
from catalog.conf import conf
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation
from dashboard.run import demo
from dashboard.run.migrating import migrate
from dashboard.run.stack import Stack, StackError
from opatlas.client import RestClient
from opatlas.errors import OpatlasError
from opatlas.graph import extract
from opatlas.identity import default_setting, detect_target
from tuning import ingest
from tuning.graph import sample_model


class Command(QuickCommand):
    help = "Look a model's operators up, explore them within a budget, look them up again, and report."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="an ONNX file, or the name of a sample such as resnet50")
        parser.add_argument("--budget-s", type=float, default=300.0, help="seconds of exploration")
        parser.add_argument("--report", type=Path, default=Path("var/demo/report.json"))

    def handle(self, *args: Any, model: str, budget_s: float, report: Path, **options: Any) -> None:
        try:
            data = Path(model).read_bytes() if Path(model).exists() else sample_model(model)
            extraction = extract(data)
            self.run(Path(model).stem, data, extraction, budget_s, report)
        except (OpatlasError, StackError) as error:
            raise CommandError(str(error)) from error

    def run(self, name: str, data: bytes, extraction: Any, budget_s: float, report: Path) -> None:
        migrate()
        home = conf().home
        organisation = default_organisation()
        _, secret = create_api_key(organisation, "demo", ["lookup", "models", "operate"])
        target = detect_target()
        with Stack(logs=home / "logs") as stack:
            self.stdout.write(
                f"{name}: {len(extraction.operators)} operators. Pages while it runs: {stack.url}"
            )
            with RestClient(stack.url, secret, job=f"demo {name}", target=target) as client:
                course = demo.Demo(name, extraction.operators, client, stack, budget_s, self.stdout.write)
                result = course.run()
            ingest.add_model(
                data, name, organisation=organisation, target=target, setting=default_setting(target)
            )
        result["unmapped"] = extraction.unmapped
        demo.write(result, report)
        self.stdout.write(demo.table(result))
        self.stdout.write(self.style.SUCCESS(demo.summary(result)))
        self.stdout.write(f"Written to {report}")
