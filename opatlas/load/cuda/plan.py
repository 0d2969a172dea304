"""The launch plan: which functions of a module run, on which grids, with which arguments.

Authors write device code alone. The host follows this plan, as data: so we time each launch, and none of the
author's code runs on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator
from opatlas.load.files import check_name

MAX_LAUNCHES = 64
MAX_ARGUMENTS = 128
MAX_BYTES = 1 << 38
"""The most for a workspace or packed buffer: more than any device has is a mistake."""
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_SHARED_BYTES = 1 << 18
TENSORS = ("input", "output", "packed", "workspace")
SCALARS = {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1)}
FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class LaunchArgument:
    """One argument of a launch. ``what`` is one of ``TENSORS``, whose ``value`` is its number (of a
    workspace: the offset in bytes), or a scalar's type."""

    what: str
    value: int | float

    @property
    def is_address(self) -> bool:
        return self.what in TENSORS


@dataclass(frozen=True)
class Launch:
    """One launch: grid and block in threads' terms, dynamic shared memory in bytes."""

    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[LaunchArgument, ...]


@dataclass(frozen=True)
class LaunchPlan:
    """``module``: the manifest's file, a cubin for ``arch`` or PTX for it and later ones. ``driver``: the
    least CUDA version of its driver (12080 is 12.8). ``packed_bytes``: buffers that ``prepare`` fills from
    the constants, once. The workspace is not preserved between runs."""

    module: str
    arch: str
    driver: int
    workspace_bytes: int
    packed_bytes: tuple[int, ...]
    prepare: tuple[Launch, ...]
    run: tuple[Launch, ...]

    @property
    def is_ptx(self) -> bool:
        return self.module.endswith(".ptx")

    @classmethod
    def from_json(cls, document: Any, operator: Operator) -> LaunchPlan:
        """Read and check; raises :class:`LoadError` with the place and what would be right."""
        plan = _object(document, "the launch plan", _FIELDS)
        module = plan["module"]
        if not isinstance(module, str) or not module.endswith((".cubin", ".ptx")):
            raise LoadError("the launch plan's module is a file that ends in .cubin or .ptx")
        check_name(module)
        packed = _list(plan["packed_bytes"], "packed_bytes", MAX_ARGUMENTS)
        packed_bytes = tuple(_whole(size, "packed_bytes", 1, MAX_BYTES) for size in packed)
        workspace_bytes = _whole(plan["workspace_bytes"], "workspace_bytes", 0, MAX_BYTES)
        sizes = {
            "input": len(operator.inputs),
            "output": len(operator.outputs),
            "packed": len(packed_bytes),
            "workspace": workspace_bytes,
        }
        constants, all_tensors = set(operator.constant_inputs), set(operator.tensor_inputs)
        read = _Reader(sizes, {"prepare": constants, "run": all_tensors})
        made = cls(
            module=module,
            arch=_arch(plan["arch"]),
            driver=_whole(plan["driver"], "driver", 0, 10**6),
            workspace_bytes=workspace_bytes,
            packed_bytes=packed_bytes,
            prepare=read.launches(plan["prepare"], "prepare"),
            run=read.launches(plan["run"], "run"),
        )
        if not made.run:
            raise LoadError("the launch plan launches nothing: 'run' is empty")
        return made

    def to_json(self) -> dict[str, Any]:
        """The document for :meth:`from_json`."""
        return {
            "module": self.module,
            "arch": self.arch,
            "driver": self.driver,
            "workspace_bytes": self.workspace_bytes,
            "packed_bytes": list(self.packed_bytes),
            "prepare": [_launch_json(one) for one in self.prepare],
            "run": [_launch_json(one) for one in self.run],
        }

    def check_device(self, arch: str, driver: int) -> None:
        """Raises :class:`LoadError` unless a device of this architecture, with this driver, can run it."""
        if driver < self.driver:
            raise LoadError(
                f"needs a driver for CUDA {_version(self.driver)}; the one here is for {_version(driver)}"
            )
        (major, minor), (here_major, here_minor) = _numbers(self.arch), _numbers(arch)
        if self.is_ptx:
            fits = (here_major, here_minor) >= (major, minor)
        else:
            fits = here_major == major and here_minor >= minor
        if not fits or (self.arch.endswith(("a", "f")) and (here_major, here_minor) != (major, minor)):
            raise LoadError(f"is made for {self.arch}, and the device here is {arch}")


class _Reader:
    """Reads launches; ``sizes`` says how many tensors there are of each kind, ``inputs`` which of them a part
    of the plan is given."""

    def __init__(self, sizes: Mapping[str, int], inputs: Mapping[str, set[int]]) -> None:
        self.sizes = sizes
        self.inputs = inputs

    def launches(self, documents: Any, part: str) -> tuple[Launch, ...]:
        found = _list(documents, part, MAX_LAUNCHES)
        return tuple(self.launch(one, part, f"{part}[{number}]") for number, one in enumerate(found))

    def launch(self, document: Any, part: str, where: str) -> Launch:
        one = _object(document, where, _LAUNCH_FIELDS)
        name = one["function"]
        if not isinstance(name, str) or not name.isascii() or not name.isidentifier() or len(name) > 1000:
            raise LoadError(f"{where}.function is the name of a function of the module")
        block = _sizes(one["block"], f"{where}.block", MAX_BLOCK)
        if block[0] * block[1] * block[2] > MAX_THREADS:
            raise LoadError(f"{where}.block has more than {MAX_THREADS} threads")
        arguments = _list(one["arguments"], f"{where}.arguments", MAX_ARGUMENTS)
        return Launch(
            function=name,
            grid=_sizes(one["grid"], f"{where}.grid", MAX_GRID),
            block=block,
            shared_bytes=_whole(one["shared_bytes"], f"{where}.shared_bytes", 0, MAX_SHARED_BYTES),
            arguments=tuple(
                self.argument(argument, part, f"{where}.arguments[{number}]")
                for number, argument in enumerate(arguments)
            ),
        )

    def argument(self, document: Any, part: str, where: str) -> LaunchArgument:
        if not isinstance(document, Mapping) or len(document) != 1:
            raise LoadError(f"{where} is an object of one entry, such as {{'input': 0}} or {{'int32': 7}}")
        ((what, value),) = document.items()
        if what in SCALARS:
            return LaunchArgument(what, _whole(value, where, *SCALARS[what]))
        if what in FLOATS:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise LoadError(f"{where} is a number")
            return LaunchArgument(what, float(value))
        if what not in TENSORS:
            raise LoadError(f"{where} is one of {', '.join((*TENSORS, *SCALARS, *FLOATS))}, not {what!r:.50}")
        number = _whole(value, where, 0, max(0, self.sizes[what] - 1))
        if self.sizes[what] == 0 or (what == "input" and number not in self.inputs[part]):
            raise LoadError(f"{where}: there is no {what} {number} in {part!r}")
        if what == "output" and part == "prepare":
            raise LoadError(f"{where}: there is no output in 'prepare'")
        return LaunchArgument(what, number)


_FIELDS = ("module", "arch", "driver", "workspace_bytes", "packed_bytes", "prepare", "run")
_LAUNCH_FIELDS = ("function", "grid", "block", "shared_bytes", "arguments")


def _launch_json(launch: Launch) -> dict[str, Any]:
    return {
        "function": launch.function,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "shared_bytes": launch.shared_bytes,
        "arguments": [{one.what: one.value} for one in launch.arguments],
    }


def _object(document: Any, where: str, fields: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(document, Mapping) or set(document) != set(fields):
        raise LoadError(f"{where} is an object with exactly {', '.join(fields)}")
    return document


def _list(value: Any, where: str, most: int) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or len(value) > most:
        raise LoadError(f"the launch plan's {where} is a list of at most {most}")
    return value


def _sizes(value: Any, where: str, most: tuple[int, int, int]) -> tuple[int, int, int]:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise LoadError(f"{where} is three numbers")
    x, y, z = (_whole(one, where, 1, bound) for one, bound in zip(value, most, strict=True))
    return x, y, z


def _whole(value: Any, where: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise LoadError(f"{where} is a whole number from {least} to {most}")
    return value


def _arch(value: Any) -> str:
    number = value.removeprefix("sm_").rstrip("af") if isinstance(value, str) else ""
    if not isinstance(value, str) or not value.startswith("sm_") or not number.isdigit():
        raise LoadError("the launch plan's arch is an architecture such as sm_90 or sm_90a")
    return value


def _numbers(arch: str) -> tuple[int, int]:
    """``sm_90a`` → (9, 0), ``sm_120`` → (12, 0)."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    return divmod(number, 10)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
