"""Reads and checks a lookup's JSON by hand, since it is the hot path. Nothing is written before everything is
read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from catalog import models
from catalog.best.revoked import RevocationCursor
from catalog.best.served import Accepts
from catalog.charging import SpendLimit
from catalog.conf import MAX_OPERATORS, MAX_WAIT_S, conf
from catalog.errors import RequestError, Unknown
from catalog.lookup.lookups import INCLUDABLE, RELATED, AskedOperator
from catalog.models import AnswerStage
from catalog.registry import register_setting, register_target
from catalog.selectors.rows import row_by
from catalog.selectors.targets import HERE, TARGET_KEY, target_named
from opatlas import identity
from opatlas.errors import CallerError, InvalidOperator
from opatlas.identity.operator import canonical_json
from opatlas.load.manifest import KINDS

OPERATOR_KEY = re.compile(r"o1:[0-9a-f]{64}")
SETTING_KEY = re.compile(r"s1:[0-9a-f]{64}")

_FIELDS = {
    *("target", "setting", "job", "accepts", "operators", "related", "wait_s", "wait_for"),
    *("include", "known", "revoked_since", "spend_limit", "free_only"),
}
_ITEM = {"key", "graph", "calls"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CURRENCY = re.compile(r"[A-Z]{3}")
MAX_CALLS = 1e15
MAX_LIMIT_MICROS = 10**15
_CACHED_GRAPH_BYTES = 8192
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class ParsedLookup:
    """A checked request, before any database access."""

    target: identity.Target | str
    setting: identity.Setting | str | None
    operators: Sequence[AskedOperator]
    related: Sequence[AskedOperator] = ()
    job: str = ""
    accepts: Accepts | None = None
    wait_s: float = 0.0
    wait_for: AnswerStage = AnswerStage.FIRST
    include: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    revoked_since: RevocationCursor | None = None
    spend_limit: SpendLimit | None = None
    free_only: bool = False


def parse_lookup(document: Any) -> ParsedLookup:
    """Check the body of ``POST /lookup``; raises a CallerError with one sentence and a place."""
    body = _object(document, "")
    unknown = sorted(set(body) - _FIELDS)
    if unknown:
        raise RequestError(
            f"There is no field {_shown(unknown[0])}: a lookup has {', '.join(sorted(_FIELDS))}.",
            where=unknown[0][:100],
        )
    if "target" not in body:
        raise RequestError("A lookup needs a target: its t1: key, or its JSON.", where="target")
    if "operators" not in body:
        raise RequestError("A lookup needs a list of operators.", where="operators")
    include = _include(body.get("include", []))
    looks_only = RELATED in include and bool(body.get("related"))
    return ParsedLookup(
        target=parse_target(body["target"]),
        setting=parse_setting(body.get("setting")),
        operators=_operators(body["operators"], "operators", 0 if looks_only else 1),
        related=_operators(body.get("related", []), "related", 0),
        job=parse_job(body.get("job", "")),
        accepts=_accepts(body.get("accepts")),
        wait_s=_wait_s(body.get("wait_s", 0)),
        wait_for=_wait_for(body.get("wait_for", AnswerStage.FIRST)),
        include=include,
        known=_known(body.get("known", [])),
        revoked_since=_revoked_since(body.get("revoked_since")),
        spend_limit=_spend_limit(body),
        free_only=_free_only(body.get("free_only", False)),
    )


BEST_FIELDS = frozenset({"target", "setting", "threads", "kinds", "versions", "job"})
"""Parameters of ``GET …/best``."""


def parse_best(key: str, given: Mapping[str, str]) -> ParsedLookup:
    """Check the parameters of ``GET /operators/{key}/best``; others are ignored."""
    if "target" not in given:
        raise RequestError("Name the target: ?target=t1:… (GET /api/v1/targets/ lists them).", where="target")
    return ParsedLookup(
        target=parse_target(given["target"]),
        setting=_setting_in_words(given.get("setting", ""), given.get("threads", "")),
        accepts=_accepts_in_words(given.get("kinds", ""), given.get("versions", "")),
        job=parse_job(given.get("job", "")),
        operators=[AskedOperator(key)],
    )


def _setting_in_words(key: str, threads: str) -> identity.Setting | str | None:
    if not threads:
        return parse_setting(key or None)
    if key:
        raise RequestError("Name the setting by its key or by its threads, not by both.", where="threads")
    if not re.fullmatch("[0-9]{1,4}", threads):
        raise RequestError("threads is a number of threads, such as threads=2.", where="threads")
    return parse_setting({"threads": int(threads)})


def _accepts_in_words(kinds: str, versions: str) -> Accepts | None:
    if not kinds and not versions:
        return None
    pairs = dict(_pair(item) for item in versions.split(",")) if versions else None
    return Accepts(kinds=parse_kinds(kinds.split(","), "kinds") if kinds else None, versions=pairs)


def _pair(text: str) -> tuple[str, str]:
    name, equals, version = text.partition("==")
    if not (name and equals and version):
        raise RequestError("versions looks like torch==2.13.0,numpy==2.4.6.", where="versions")
    return name.strip(), version.strip()


def parse_target(value: Any) -> identity.Target | str:
    """A ``t1:`` key or ``here`` unchanged, or a target's JSON."""
    if isinstance(value, str):
        if value != HERE and not TARGET_KEY.fullmatch(value):
            raise RequestError(
                "A target is its key (t1: and 64 hexadecimal digits), its JSON, or 'here'.", where="target"
            )
        return value
    return _placed("target", identity.Target.from_json, _object(value, "target"))


def parse_setting(value: Any) -> identity.Setting | str | None:
    """An ``s1:`` key unchanged, a setting's JSON, or None: the target's default."""
    if value is None:
        return None
    if isinstance(value, str):
        if not SETTING_KEY.fullmatch(value):
            raise RequestError(
                "A setting's key is s1: and 64 hexadecimal digits; or send the setting's JSON.",
                where="setting",
            )
        return value
    return _placed("setting", identity.Setting.from_json, _object(value, "setting"))


def parse_job(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200 or _CONTROL.search(value):
        raise RequestError("A job's name is a text of at most 200 printable characters.", where="job")
    return value.strip()


def resolve(parsed: ParsedLookup) -> tuple[models.Target, models.Setting]:
    """Rows for a checked target and setting. Those given as JSON are registered; an unknown key is a 404.
    Everything is checked before the first row is written, including unread graphs of unknown operators."""
    target, setting = parsed.target, parsed.setting
    target_row = target_named(target) if isinstance(target, str) else None
    setting_row = _by_key(models.Setting, setting, "setting") if isinstance(setting, str) else None
    if target_row is not None and (setting_row is not None or setting is None):
        pair = (target_row.key, setting_row.key if setting_row else "")
        if (wished := _checked_pairs.get(pair)) is not None:
            setting_row = setting_row or row_by(models.Setting, "key", wished)
            if setting_row is not None:
                return target_row, setting_row
    else:
        pair = None
    hardware = identity.Target.from_json(target_row.description) if target_row else target
    assert isinstance(hardware, identity.Target)
    if setting_row is None:
        wish = identity.default_setting(hardware) if setting is None else setting
        assert isinstance(wish, identity.Setting)
    else:
        wish = identity.Setting.from_json(setting_row.description)
    identity.check_setting(wish, hardware)
    if pair is not None:
        if len(_checked_pairs) >= _MOST_PAIRS:
            _checked_pairs.clear()
        _checked_pairs[pair] = wish.key
    target_row = target_row or row_by(models.Target, "key", hardware.key)
    setting_row = setting_row or row_by(models.Setting, "key", wish.key)
    if target_row is None or setting_row is None:
        _check_graphs([*parsed.operators, *parsed.related])
    return target_row or register_target(hardware), setting_row or register_setting(wish)


# By a target's and a setting's key (none: the target's default) the setting that was checked: what they say
# is in their keys, and reading it takes longer than a statement.
_checked_pairs: dict[tuple[str, str], str] = {}
_MOST_PAIRS = 4096


def place_named(target: Any, setting: Any) -> tuple[models.Target, models.Setting]:
    """Rows for a lookup's target and setting; raises like a lookup."""
    return resolve(ParsedLookup(parse_target(target), parse_setting(setting), operators=()))


def _check_graphs(operators: Sequence[AskedOperator]) -> None:
    unread = {item.key for item in operators if item.unread is not None}
    known = set(models.Operator.objects.filter(key__in=unread).values_list("key", flat=True))
    for item in operators:
        if item.key in unread - known:
            item.read_graph()


def parse_kinds(value: Any, where: str) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise RequestError(f"Kinds are a list of some of {', '.join(KINDS)}.", where=where)
    for kind in value:
        if kind not in KINDS:
            raise RequestError(f"There is no kind {_shown(kind)}: kinds are {', '.join(KINDS)}.", where=where)
    return frozenset(value)


def parse_versions(value: Any, where: str) -> dict[str, str] | None:
    if value is None:
        return None
    versions = _object(value, where)
    if not all(isinstance(version, str) for version in versions.values()):
        raise RequestError('Versions map names to texts: {"torch": "2.13.0"}.', where=where)
    return dict(versions)


def _by_key(model: type[Any], key: str, what: str) -> Any:
    row = row_by(model, "key", key)
    if row is None:
        raise Unknown(f"This {what} is not known: send its JSON once, in place of its key.", where=what)
    return row


def _operators(value: Any, where: str, least: int) -> list[AskedOperator]:
    if not isinstance(value, list) or not least <= len(value) <= MAX_OPERATORS:
        raise RequestError(f"{where} is a list of {least} to {MAX_OPERATORS} items.", where=where)
    return [_asked(item, f"{where}[{number}]") for number, item in enumerate(value)]


def _asked(item: Any, where: str) -> AskedOperator:
    if not isinstance(item, dict) or not item.keys() <= _ITEM:
        raise RequestError('An operator is {"key": "o1:…"} or {"graph": {…}}, and "calls".', where=where)
    calls = _calls(item["calls"], where) if "calls" in item else 1.0
    key = item.get("key")
    if key is not None and not (isinstance(key, str) and OPERATOR_KEY.fullmatch(key)):
        raise RequestError("An operator's key is o1: and 64 hexadecimal digits.", where=f"{where}.key")
    if "graph" not in item:
        if key is None:
            raise RequestError("An operator needs a key or a graph.", where=where)
        return AskedOperator(key, calls)
    graph = _object(item["graph"], f"{where}.graph")
    if key is not None:
        return AskedOperator(key, calls, unread=partial(_graph_of, key, graph, where))
    operator = parse_graph(graph, f"{where}.graph")
    return AskedOperator(operator.key, calls, operator)


def _graph_of(key: str, graph: Mapping[str, Any], where: str) -> identity.Operator:
    """A graph that came with its key: read only if the key is unknown, and then compared with it."""
    operator = parse_graph(graph, f"{where}.graph")
    if key != operator.key:
        raise RequestError(f"The graph's key is {operator.key}, not the one given.", where=f"{where}.key")
    return operator


def parse_graph(document: Any, where: str) -> identity.Operator:
    """An operator's graph in any form that ``opatlas.identity.parse_operator`` takes; bounded in memory."""
    try:
        text = canonical_json(_object(document, where))
    except RecursionError as error:
        raise RequestError("The graph is nested too deeply.", where=where) from error
    parse = _parse_known_text if len(text) <= _CACHED_GRAPH_BYTES else _parse_text
    return _placed(where, parse, text)


def _parse_text(text: bytes) -> identity.Operator:
    try:
        operator = identity.parse_operator(json.loads(text))
        identity.check_fits(operator, conf().max_operator_bytes)
    except RecursionError as error:
        raise InvalidOperator("The graph is nested too deeply.") from error
    return operator


# A job asks for the same operators again and again; reading one takes a millisecond of shape inference.
_parse_known_text = lru_cache(maxsize=4096)(_parse_text)


def _placed(where: str, call: Callable[[Any], Any], argument: Any) -> Any:
    """Call, and add the place in the whole request to a CallerError."""
    try:
        return call(argument)
    except CallerError as error:
        inner = error.where
        joined = f"{where}.{inner}" if inner and not inner.startswith("[") else f"{where}{inner}"
        raise RequestError(str(error), where=joined) from error


def _calls(value: Any, where: str) -> float:
    calls = _number(value)
    if calls is None or not 0 < calls <= MAX_CALLS:
        raise RequestError("calls is a number above 0 and at most 1e15.", where=f"{where}.calls")
    return calls


def _wait_s(value: Any) -> float:
    wait_s = _number(value)
    if wait_s is None or not 0 <= wait_s <= MAX_WAIT_S:
        raise RequestError(f"wait_s is a number of seconds from 0 to {MAX_WAIT_S:g}.", where="wait_s")
    return wait_s


def _wait_for(value: Any) -> AnswerStage:
    if not isinstance(value, str) or value not in AnswerStage.values:
        raise RequestError(f"wait_for is one of {', '.join(AnswerStage.values)}.", where="wait_for")
    return AnswerStage(value)


def _include(value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name in INCLUDABLE for name in value):
        raise RequestError(f"include is a list of some of {', '.join(INCLUDABLE)}.", where="include")
    return frozenset(value)


def _known(value: Any) -> frozenset[str]:
    if (
        not isinstance(value, list)
        or len(value) > 2 * MAX_OPERATORS
        or not all(isinstance(one, str) and _SHA256.fullmatch(one) for one in value)
    ):
        raise RequestError(
            f"known is a list of at most {2 * MAX_OPERATORS} artifacts, each 64 hexadecimal digits.",
            where="known",
        )
    return frozenset(value)


def _spend_limit(body: Mapping[str, Any]) -> SpendLimit | None:
    if (value := body.get("spend_limit")) is None:
        return None
    limit = _object(value, "spend_limit")
    amount, currency = limit.get("amount_micros"), limit.get("currency")
    if (
        limit.keys() != {"amount_micros", "currency"}
        or type(amount) is not int
        or not 0 <= amount <= MAX_LIMIT_MICROS
        or not (isinstance(currency, str) and _CURRENCY.fullmatch(currency))
    ):
        raise RequestError(
            'spend_limit is {"amount_micros": 5000000, "currency": "EUR"}: whole millionths, at most 1e15, '
            "and the currency by ISO 4217.",
            where="spend_limit",
        )
    if not parse_job(body.get("job", "")):
        raise RequestError("A spend limit is one of a job: name the job as well.", where="job")
    return SpendLimit(amount, currency)


def _free_only(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RequestError("free_only is true or false.", where="free_only")
    return value


def _revoked_since(value: Any) -> RevocationCursor | None:
    if value is None:
        return None
    return RevocationCursor.parse(value if isinstance(value, str) else "")


def _number(value: Any) -> float | None:
    """A finite JSON number as a float; None for anything else (booleans are no numbers)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _accepts(value: Any) -> Accepts | None:
    if value is None:
        return None
    accepts = _object(value, "accepts")
    if not accepts.keys() <= {"kinds", "versions"}:
        raise RequestError("accepts has kinds and versions.", where="accepts")
    return Accepts(
        kinds=parse_kinds(accepts.get("kinds"), "accepts.kinds"),
        versions=parse_versions(accepts.get("versions"), "accepts.versions"),
    )


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"{where or 'The body'} must be a JSON object.", where=where)
    return value


def _shown(value: Any) -> str:
    """A caller's value for an error message: short, quoted."""
    text = json.dumps(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
