"""The only loader: from artifact kinds to callables. Workers time through it what jobs will load."""

from opatlas.errors import LoadError
from opatlas.load.kernel import Bound, KernelFailed, LoadedKernel
from opatlas.load.loader import load
from opatlas.load.manifest import Manifest

Kernel = LoadedKernel  # what jobs import it as

__all__ = ["Bound", "Kernel", "KernelFailed", "LoadError", "LoadedKernel", "Manifest", "load"]
