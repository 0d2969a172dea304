"""Configuration, and what of it concerns a job.

Each package has a ``conf.py`` with one frozen dataclass whose fields are :func:`variable`;
``conf()`` there gives this process's, read from the environment once. ``docs/configuration.md`` is made from
the same fields (``manage.py describe_configuration``). Why no library: ``docs/choices.md``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

from opatlas.errors import OpatlasError

T = TypeVar("T")

_process: dict[type, Any] = {}
"""What was read from this process's environment, by its dataclass."""


class Misconfigured(OpatlasError):
    """A variable that cannot be read: says which, what is wrong with it and what would be right."""


def variable(
    default: Any,
    unit: str,
    says: str,
    *,
    name: str = "",
    shown: str = "",
    read: Callable[[str], Any] | None = None,
    least: float = -math.inf,
    most: float = math.inf,
    secret: bool = False,
) -> Any:
    """A field of such a dataclass, set by ``OPATLAS_`` and its name in capitals, or by ``name``.

    ``default`` is a value, or a function of the fields before this one; ``shown`` says it in the document.
    ``read`` makes the value from text, the default's too, and raises ValueError with what would be right.
    """
    about = {"default": default, "unit": unit, "says": says, "name": name, "shown": shown, "read": read}
    return field(repr=not secret, metadata=about | {"least": least, "most": most, "secret": secret})


def read(kind: type[T], environment: Mapping[str, str]) -> T:
    """A ``kind`` made of the variables in ``environment``; raises :class:`Misconfigured`. Empty is unset."""
    types, given = get_type_hints(kind), SimpleNamespace()
    for one in fields(kind):  # type: ignore[arg-type]
        about, text = one.metadata, environment.get(name_of(one), "").strip()
        default = about["default"](given) if callable(about["default"]) else about["default"]
        if text or (about["read"] and isinstance(default, str)):
            default = _value(name_of(one), text or default, about, types[one.name])
        setattr(given, one.name, default)
    return kind(**vars(given))


def process(kind: type[T]) -> T:
    """This process's ``kind``: read from its environment when it is first asked for, then kept."""
    if kind not in _process:
        _process[kind] = read(kind, os.environ)
    value: T = _process[kind]
    return value


def name_of(one: Any) -> str:
    """The variable that sets a field."""
    return str(one.metadata["name"] or f"OPATLAS_{one.name.upper()}")


def _value(name: str, text: str, about: Mapping[str, Any], kind: Any) -> Any:
    try:
        value = (about["read"] or _READERS[kind])(text)
    except ValueError as error:
        what = name if about["secret"] else f"{name}={text!r}"
        raise Misconfigured(f"{what} cannot be read. {error}") from None
    if isinstance(value, int | float) and not about["least"] <= value <= about["most"]:
        most = "" if about["most"] == math.inf else f" and at most {about['most']:g}"
        raise Misconfigured(f"{name}={text!r} is out of bounds: it is at least {about['least']:g}{most}.")
    return value


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError("It is a whole number.")
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.IGNORECASE):
        raise ValueError("It is a number.")
    return float(text)


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCHES:
        raise ValueError("It is 1 or 0.")
    return _SWITCHES[text.lower()]


def _path(text: str) -> Path:
    return Path(text).resolve()


_SWITCHES = {
    "1": True,
    "yes": True,
    "true": True,
    "on": True,
    "0": False,
    "no": False,
    "false": False,
    "off": False,
}
_READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: _whole,
    float: _number,
    float | None: _number,
    bool: _switch,
    Path: _path,
    Path | None: _path,
}


@dataclass(frozen=True, kw_only=True)
class OpatlasConf:
    """What a job and everything else read."""

    url: str = variable(
        "",
        "URL",
        "where the service is: clients ask there, and links in messages begin with it",
        shown="what `opatlas login` kept; else `http://127.0.0.1:8000`",
        read=lambda text: text.rstrip("/"),
    )
    key: str = variable(
        "",
        "text",
        "the API key of a job's client",
        shown="what `opatlas login` kept",
        secret=True,
    )
    config: Path = variable(
        lambda given: Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opatlas",
        "folder",
        "where `opatlas login` keeps both",
        shown="the user's configuration folder",
    )
    cache: Path = variable(
        lambda given: Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opatlas",
        "folder",
        "answers of the service, artifacts, and the compiled thread pool, for all clients of this machine",
        shown="the user's cache folder",
    )
    sidecar: Path = variable(
        lambda given: _runtime_folder(given.cache) / "sidecar.sock",
        "file",
        "the socket of the machine's sidecar. A client uses it if both have the same login, or if the "
        "client has none",
        shown="`sidecar.sock` in the user's runtime folder; where there is none, in `OPATLAS_CACHE`",
    )
    cache_bytes: int = variable(
        256 << 20,
        "bytes",
        "the most that clients' entries may take there, artifacts not counted; the least recently used "
        "are dropped",
        least=1 << 20,
    )
    frameworks: tuple[str, ...] = variable(
        "openvino,pytorch,xla,torch.compile",
        "names",
        "in what `opatlas.Session` tries a model beside ONNX Runtime, once for a model and machine, if "
        "installed; `none`: ONNX Runtime alone",
        read=lambda text: () if text == "none" else tuple(one.strip() for one in text.split(",")),
    )
    loading_s: float = variable(
        30.0,
        "seconds",
        "time for loading a model into all of them; a compiler that takes longer is ended",
        least=0.0,
    )
    first_run_s: float = variable(
        15.0,
        "seconds",
        "time for a model's first run on its example. If it takes longer it is ended, and ONNX Runtime "
        "runs the model",
        least=0.1,
    )
    check_runs: int = variable(
        5,
        "runs",
        "a session that left ONNX Runtime compares so many of its first runs with it, on the caller's "
        "own inputs; 0: none",
        least=0,
    )
    check_s: float = variable(
        10.0,
        "seconds",
        "time that ONNX Runtime may take for such a run. If it takes longer it is ended, and no further "
        "run is compared",
        least=0.01,
    )
    cc: str = variable(
        "", "command", "the C compiler", name="CC", shown="gcc, cc, clang or ziglang's, whichever is there"
    )
    cxx: str = variable("", "command", "the C++ compiler", name="CXX", shown="g++, c++, clang++ or ziglang's")

    @property
    def service_url(self) -> str:
        """Where the service is, unless somebody said otherwise."""
        return self.url or "http://127.0.0.1:8000"


def _runtime_folder(cache: Path) -> Path:
    """Where a user's sockets lie: on this machine alone, where the system has such a place."""
    return Path(os.environ["XDG_RUNTIME_DIR"]) / "opatlas" if os.environ.get("XDG_RUNTIME_DIR") else cache


def conf() -> OpatlasConf:
    return process(OpatlasConf)
