"""Engines that several models of a process share: :class:`Engines`."""

from opatlas.plan.engines.engines import Engines, EngineShare
from opatlas.plan.engines.steps import DeadlinePassed, EngineStalled, EngineStep, EngineWait

__all__ = ["DeadlinePassed", "EngineShare", "EngineStalled", "EngineStep", "EngineWait", "Engines"]
