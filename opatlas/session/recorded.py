"""Records the calls on ONNX Runtime's ``SessionOptions``, which cannot be read back from them.

``add_initializer`` and similar methods change what a model computes. So their calls are recorded from the
import of ``opatlas`` on. Options made earlier are recognised as unknown. This module does not import ONNX
Runtime.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

Call = tuple[str, tuple[Any, ...]]
"""A method's name and its positional arguments."""

_calls: WeakKeyDictionary[Any, list[Call]] = WeakKeyDictionary()
_noted: set[type] = set()


def calls_of(options: Any) -> Sequence[Call] | None:
    """The calls on the options, in order; None if they were made before recording began."""
    return _calls.get(options)


def note_calls(kind: type) -> None:
    """Record the calls on objects of the class that are made from now on."""
    if kind in _noted:
        return
    _noted.add(kind)
    made = kind.__init__  # type: ignore[misc]

    @wraps(made)
    def noted(self: Any, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        _calls[self] = []

    kind.__init__ = noted  # type: ignore[misc]
    for name, member in list(vars(kind).items()):
        if not name.startswith("_") and callable(member):
            setattr(kind, name, _noting(name, member))


def _noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def noted(self: Any, *given: Any, **named: Any) -> Any:
        result = method(self, *given, **named)
        if (calls := _calls.get(self)) is not None:
            calls.append((name, (*given, *named.values())))
        return result

    return noted


def note_options() -> None:
    """Record the calls on ``onnxruntime.SessionOptions``, from now or from its import on."""
    onnxruntime = sys.modules.get("onnxruntime")
    if hasattr(onnxruntime, "SessionOptions"):
        note_calls(onnxruntime.SessionOptions)  # type: ignore[union-attr]
    else:
        sys.meta_path.insert(0, _WhenImported())


class _WhenImported(MetaPathFinder):
    """A finder that finds nothing itself, and acts once another one has run ONNX Runtime's module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "onnxruntime":
            return None
        for finder in list(sys.meta_path):
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                return self._told(spec)
        return None

    def _told(self, spec: ModuleSpec) -> ModuleSpec:
        if (loader := spec.loader) is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                if hasattr(module, "SessionOptions"):
                    note_calls(module.SessionOptions)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
