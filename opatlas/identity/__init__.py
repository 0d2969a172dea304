"""Identity: canonical operator, target and setting, and the keys made of them.

Names come when they are first asked for: who only keeps keys (a job's client) does not wait for ONNX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opatlas.lazy import names_of

if TYPE_CHECKING:
    from opatlas.identity.canonical import Canonical, canonicalise
    from opatlas.identity.cost import Description, check_fits, check_measurable, describe
    from opatlas.identity.onnx_form import to_onnx
    from opatlas.identity.operator import OPSET, Node, Operator, Value
    from opatlas.identity.parse import parse_canonical, parse_operator
    from opatlas.identity.place.cpu import detect_target
    from opatlas.identity.place.flags import compiler_flags, llvm_target
    from opatlas.identity.place.setting import Setting, check_setting, default_setting
    from opatlas.identity.place.target import Target

__getattr__ = names_of(
    __name__,
    {
        "canonical": ("Canonical", "canonicalise"),
        "cost": ("Description", "check_fits", "check_measurable", "describe"),
        "onnx_form": ("to_onnx",),
        "operator": ("OPSET", "Node", "Operator", "Value"),
        "parse": ("parse_canonical", "parse_operator"),
        "place.cpu": ("detect_target",),
        "place.flags": ("compiler_flags", "llvm_target"),
        "place.setting": ("Setting", "check_setting", "default_setting"),
        "place.target": ("Target",),
    },
)

__all__ = [
    "OPSET",
    "Canonical",
    "Description",
    "Node",
    "Operator",
    "Setting",
    "Target",
    "Value",
    "canonicalise",
    "check_fits",
    "check_measurable",
    "check_setting",
    "compiler_flags",
    "default_setting",
    "describe",
    "detect_target",
    "llvm_target",
    "parse_canonical",
    "parse_operator",
    "to_onnx",
]
