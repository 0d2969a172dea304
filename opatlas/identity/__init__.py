"""Identity: canonical operator, target and setting, and the keys made of them."""

from opatlas.identity.operator import OPSET, Node, Operator, Value
from opatlas.identity.setting import Setting, default_setting
from opatlas.identity.target import Target, detect_target

__all__ = ["OPSET", "Node", "Operator", "Setting", "Target", "Value", "default_setting", "detect_target"]
