"""What a torch recipe's parameters do to an operator's plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from opatlas.identity.operator import Operator
from opatlas.load.torch_graph import Plan


def plan(operator: Operator, known: Mapping[int, torch.Tensor], recipe: Mapping[str, Any]) -> Plan:
    """The operator's plan with the recipe's layout and weights. Called in inference mode."""
    return Plan(operator, known)
