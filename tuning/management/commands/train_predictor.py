"""``manage.py train_predictor [PATH …] [--organisation NAME] [--epochs N] [--seed N]``"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.commands import CallerCommand
from catalog.errors import StoreError
from catalog.models import Organisation
from opatlas.client.predict.network import MOST_OPERATORS
from tuning.explore.signing import signing_key
from tuning.predictor.orders import given_in, longest_first
from tuning.predictor.publishing import publish_network
from tuning.predictor.recorded import asked_for, recorded_for
from tuning.predictor.training import TrainingWish, train


class Command(CallerCommand):
    help = (
        "Train the network that predicts which operators come next, and give it to clients. Without an "
        "organisation it is shared, and learns from nobody's jobs: from models that are everybody's and from "
        "those that are named here. With one it learns from that one's jobs and models too, and is theirs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "paths", nargs="*", type=Path, help="ONNX models, operator lists (JSON), or folders of them"
        )
        parser.add_argument("--organisation", default="", help="whose jobs it learns from, and who gets it")
        parser.add_argument("--epochs", type=int, default=TrainingWish.epochs)
        parser.add_argument("--seed", type=int, default=TrainingWish.seed)

    def handle(self, *args: Any, **options: Any) -> None:
        owner = _named(options["organisation"])
        if options["epochs"] < 1:
            raise CommandError("--epochs is a number from 1 on.")
        orders = longest_first([*recorded_for(owner), *given_in(options["paths"])], MOST_OPERATORS)
        room = MOST_OPERATORS - len({key for order in orders for key in order})
        known = asked_for(owner, room) if owner else {}
        try:
            data = train(orders, TrainingWish(options["epochs"], options["seed"]), known)
        except ImportError as error:
            raise CommandError("Training needs PyTorch: install requirements-worker.txt.") from error
        try:
            row = publish_network(data, owner, signing_key())
        except StoreError as error:
            raise CommandError(str(error)) from error
        whose = f"for {owner}" if owner else "shared"
        self.stdout.write(
            f"Version {row.version} ({whose}) learnt from {len(orders)} jobs and models with "
            f"{row.document['operators']} operators: {row.size_bytes:,} bytes."
        )


def _named(name: str) -> Organisation | None:
    if not name:
        return None
    found = Organisation.objects.filter(name=name).first()
    if found is None:
        raise CommandError(f"There is no organisation {name!r}.")
    return found
