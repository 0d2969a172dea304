"""Identity: canonical operator, target and setting, and the keys made of them."""

from opatlas.identity.canonical import Canonical, canonicalise
from opatlas.identity.cost import Description, check_fits, describe
from opatlas.identity.onnx_form import to_onnx
from opatlas.identity.operator import OPSET, Node, Operator, Value
from opatlas.identity.parse import parse_operator
from opatlas.identity.place.cpu import detect_target
from opatlas.identity.place.flags import compiler_flags, llvm_target
from opatlas.identity.place.setting import Setting, check_setting, default_setting
from opatlas.identity.place.target import Target
from opatlas.identity.rekey import rekey

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
    "check_setting",
    "compiler_flags",
    "default_setting",
    "describe",
    "detect_target",
    "llvm_target",
    "parse_operator",
    "rekey",
    "to_onnx",
]
