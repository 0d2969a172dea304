"""Query parameters that name a place, a row by its key or an environment."""

from __future__ import annotations

import re

from rest_framework.request import Request

from catalog.api.describing import query
from catalog.errors import RequestError, Unknown
from catalog.models import Environment, Setting, Target
from catalog.selectors.targets import target_named
from tuning.api import filters
from tuning.statistics.methods import At

_DIGEST = re.compile(r"[0-9a-f]{64}")

PLACE = [
    query("target", "Only this target's key, or `here`; needs a setting too."),
    query("setting", "Only this setting's key; needs a target too."),
]


def place_of(request: Request) -> At:
    """One place, or everywhere: a target without a setting would mix threads."""
    target, setting = target_of(request), _setting_of(request)
    if (target is None) != (setting is None):
        missing = "setting" if setting is None else "target"
        raise RequestError("target and setting go together: name both, or neither.", where=missing)
    return At(target, setting)


def target_of(request: Request) -> Target | None:
    """The target that ``?target=`` names; None where it was not given."""
    name = filters.key(request, "target")
    return target_named(name) if name else None


def _setting_of(request: Request) -> Setting | None:
    key = filters.key(request, "setting")
    if not key:
        return None
    found = Setting.objects.filter(key=key).first()
    if found is None:
        raise Unknown("This setting is not known.", where="setting")
    return found


def environment_of(request: Request, name: str) -> Environment:
    digest = filters.key(request, name)
    if not _DIGEST.fullmatch(digest):
        raise RequestError(f"{name} is an environment's digest: 64 hexadecimal digits.", where=name)
    found = Environment.objects.filter(digest=digest).first()
    if found is None:
        raise Unknown("This environment is not known.", where=name)
    return found
