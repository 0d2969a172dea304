"""Which arguments of ``InferenceSession(…)`` a plan can honour, and why ONNX Runtime must take over
otherwise; by the rows of :mod:`opatlas.session.surface`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import onnxruntime as ort

from opatlas.errors import CallerError, InvalidModel, InvalidOperator, InvalidTarget, OpatlasError
from opatlas.plan.plan import InvalidPlan
from opatlas.session.recorded import calls_of
from opatlas.session.surface import ARGUMENTS, SESSION_OPTIONS, followed_without_handing_on

log = logging.getLogger("opatlas")
PROVIDER = "CPUExecutionProvider"
BESIDE = "AzureExecutionProvider"
"""Computes nothing here: it calls remote services, for operators that need a library of custom ones."""


@dataclass(frozen=True)
class Followed:
    """``why_not``: the option that no plan honours, in words; empty if a plan honours all. ``threads``:
    None for all cores. ``dims``: sizes of symbolic dimensions. ``providers``: those that ONNX Runtime
    would name."""

    why_not: str = ""
    threads: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    providers: tuple[str, ...] = (PROVIDER,)


def followed(
    sess_options: Any,
    providers: Any,
    provider_options: Any,
    more: Mapping[str, Any],
) -> Followed:
    """For the arguments of ``InferenceSession(…)`` beside the model; ``more``: those that no signature
    lists."""
    why_not = unfollowed_options(sess_options) or _unfollowed_keyword(more)
    if why_not:
        return Followed(why_not)
    named, why_not = _named_providers(providers, provider_options)
    if why_not:
        return Followed(why_not)
    threads = sess_options.intra_op_num_threads or None if sess_options is not None else None
    return Followed("", threads, _dims(sess_options), named)


def unfollowed_options(options: Any) -> str:
    """Why no plan honours these ``SessionOptions``; empty if one does."""
    if options is None:
        return ""
    if not isinstance(options, ort.SessionOptions):
        return f"sess_options are {type(options).__name__}, no SessionOptions."
    if (calls := calls_of(options)) is None:
        return "The SessionOptions were made before opatlas was imported: nobody knows what they say."
    names = [name for name, _ in calls]
    names += [name for name, default in _defaults().items() if getattr(options, name) != default]
    found = (one for one in names if not followed_without_handing_on(SESSION_OPTIONS, one))
    return _told("SessionOptions.", next(found, ""))


def _told(kind: str, name: str) -> str:
    return f"No plan does what {kind}{name} says." if name else ""


@cache
def _defaults() -> Mapping[str, Any]:
    """The default values of the options' properties."""
    options, kind = ort.SessionOptions(), ort.SessionOptions
    return {name: getattr(options, name) for name in dir(kind) if isinstance(getattr(kind, name), property)}


def _dims(options: Any) -> dict[str, int]:
    calls = calls_of(options) if options is not None else None
    return {
        given[0]: given[1] for name, given in calls or () if name == "add_free_dimension_override_by_name"
    }


def _unfollowed_keyword(more: Mapping[str, Any]) -> str:
    if unknown := [name for name in more if name not in ARGUMENTS]:
        log.warning("A session has no option %s; ONNX Runtime passes over it too.", ", ".join(unknown))
    said = {"read_config_from_model": os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") == "1", **more}
    names = [name for name, value in said.items() if value and name in ARGUMENTS]
    return _told("", next((one for one in names if not followed_without_handing_on(ARGUMENTS, one)), ""))


def _named_providers(providers: Any, provider_options: Any) -> tuple[tuple[str, ...], str]:
    """The providers of a session that a plan can replace; otherwise why it cannot."""
    installed = ort.get_available_providers()
    if providers is None or (isinstance(providers, list | tuple) and not providers):
        # Without a word it would be all that there are.
        others = [one for one in installed if one not in (PROVIDER, BESIDE)]
        return (PROVIDER,), f"Where no provider is named, {others[0]} runs." if others else ""
    if not isinstance(providers, list | tuple) or not all(map(_is_provider, providers)):
        return (), f"The providers {providers!r} are no list of names, or of names with options."
    names = [one if isinstance(one, str) else one[0] for one in providers]
    there = list(dict.fromkeys(one for one in names if one in installed))
    if unknown := [one for one in names if one not in ort.get_all_providers()]:
        return (), f"There is no provider {unknown[0]}."
    if others := [one for one in there if one not in (PROVIDER, BESIDE)]:
        return (), f"A plan runs by {PROVIDER}, not by {others[0]}."
    beside = [one[1] for one in providers if not isinstance(one, str) and one[0] in there]
    if any(beside) or provider_options not in (None, [{}] * len(names)):
        return (), "No plan does what provider_options say."
    if absent := [one for one in names if one not in there]:
        log.warning("ONNX Runtime has no %s here: the session runs by %s.", ", ".join(absent), PROVIDER)
    return (*there, *(() if PROVIDER in there else (PROVIDER,))), ""


def _is_provider(given: Any) -> bool:
    if isinstance(given, str):
        return True
    is_pair = isinstance(given, tuple) and len(given) == 2
    return is_pair and isinstance(given[0], str) and isinstance(given[1], dict)


def is_of_caller(error: Exception, has_plan: bool) -> bool:
    """Whether the error is about an argument that Opatlas adds, such as a plan. Anything else is not the
    caller's fault, as long as ONNX Runtime runs the model."""
    if has_plan and isinstance(error, OpatlasError):
        return not isinstance(error, InvalidModel)
    of_model = (InvalidModel, InvalidOperator, InvalidTarget, InvalidPlan)
    return isinstance(error, CallerError) and not isinstance(error, of_model)


def check_own(threads: int | None, dims: Mapping[str, int] | None) -> None:
    """Raises :class:`opatlas.errors.CallerError` for values that no session can have."""
    if threads is not None and (type(threads) is not int or threads < 1):
        raise CallerError(f"A session has at least 1 thread, not {threads!r}.")
    for name, size in (dims or {}).items():
        if not isinstance(size, int) or size < 0:
            raise CallerError(f"Dimension '{name}' is given as {size!r}; it is a whole number, at least 0.")
