"""The only loader there is: artifact kinds → callables. Workers time through it what jobs will load."""

from opatlas.load.kernel import Bound, Kernel
from opatlas.load.manifest import Manifest

__all__ = ["Bound", "Kernel", "Manifest"]
