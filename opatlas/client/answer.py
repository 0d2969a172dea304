"""What is known of one operator, from whatever source. PURE."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from opatlas.evidence import TIMES

STATUSES = ("hit", "miss", "need_graph", "need_lookup")
LONGEST_LIFE_S = 86400.0
"""Whatever a service says: revocations reach only clients that ask."""
SHA256 = re.compile(r"[0-9a-f]{64}")
AGREEMENT = re.compile(r"agr_[0-9a-f]{32}")
_OPERATOR = re.compile(r"o1:[0-9a-f]{64}")
_TARGET = re.compile(r"t1:[0-9a-f]{64}")


@dataclass(frozen=True)
class Answer:
    """What the service knows of one operator: ``status`` is ``hit``, ``miss`` or ``need_graph``. An answer is
    true if it is a hit.

    Of a hit, ``stage`` says how far exploring has come (``first``: the contest waits or runs; ``contest``: it
    has ended; ``tuned``: a slice of tuning as well), and ``final`` whether nothing more is planned now.
    ``expires_s``: how long it may be used without asking again; seconds while it is not final. ``best``: the
    fastest acceptable implementation with its evidence (times in microseconds). ``state`` and ``reason``:
    what became of a miss; ``payment_required`` is one too, since its best is withheld until it is paid.
    ``price`` comes with charged and withheld ones: ``amount_micros``, ``currency``, ``pay_url``, …, and for a
    job with a spend limit the ``agreement`` on further uses. ``target`` and ``setting``: the keys for which
    it holds. ``from_neighbour``: it was measured on another target that differs only in cores and cache
    sizes: its key as ``target``, and ``differs``. The times in ``best`` do not hold here then. ``source``:
    the ``service``, this process's ``memory``, the machine's ``cache``, or ``nobody`` (a miss, since the
    service could not be asked; ``reason`` says why).
    """

    key: str
    status: str
    best: Mapping[str, Any] | None = None
    state: str = ""
    reason: str = ""
    target: str = ""
    setting: str = ""
    price: Mapping[str, Any] | None = None
    stage: str = ""
    final: bool = False
    expires_s: float = 0.0
    from_neighbour: Mapping[str, Any] | None = None
    source: str = "service"
    loader: Callable[[Answer], Any] | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.status == "hit"

    @property
    def hit(self) -> bool:
        return self.status == "hit"

    @property
    def is_default(self) -> bool:
        """Whether the default itself is served, which a job has without the service."""
        return self.best is not None and bool(self.best.get("is_default"))

    @property
    def evidence(self) -> Mapping[str, Any]:
        """Of a hit: ``max_error`` of the worst element, as a share of what is allowed there, and the largest
        passing ``tolerance``; the sandbox ``tier`` and the ``environment`` (versions) of its verification;
        the ``signer``, SHA-256 of the signing key. Empty from an older service."""
        return (self.best or {}).get("evidence", {})

    @property
    def why_trusted(self) -> str:
        """The evidence in words; empty if there is none. :meth:`load` verifies the signature, with the keys
        that this client trusts."""
        known, said = self.evidence, list[str]()
        if (error := known.get("max_error")) is not None:
            said.append(f"error {error:.2g}, up to {known['tolerance']:.2g} passes")
        if known.get("tier"):
            said.append(f"proven in sandbox tier {known['tier']}")
        if versions := known.get("environment"):
            said.append(
                "with " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
            )
        if known.get("signer"):
            said.append(f"signed by the key {known['signer'][:12]}…")
        return "; ".join(said)

    def load(self) -> Any:
        """The implementation as a function of the operator's inputs
        (:class:`~.loading.function.KernelFunction`): fetched if needed, verified, loaded. Raises
        :class:`opatlas.errors.OpatlasError`: it was refused or does not load
        (:class:`~opatlas.errors.LoadError`), or the service's error."""
        if self.loader is None:
            raise ValueError("This answer was made by no client: load it with fetch_and_load.")
        return self.loader(self)

    @classmethod
    def from_json(cls, item: Mapping[str, Any], target: str, setting: str) -> Answer:
        """One item of a lookup's answer; raises ValueError and the like for anything that no service
        sends."""
        answer, given = object.__new__(cls), item.get
        # A frozen class sets each field by a call, which takes half of the time of reading a whole answer.
        answer.__dict__.update(
            key=item["key"],
            status=item["status"],
            best=given("best"),
            state=given("state", ""),
            reason=given("reason", ""),
            target=target,
            setting=setting,
            price=given("price"),
            stage=given("stage", ""),
            final=given("final", False),
            expires_s=min(float(given("expires_s", 0.0)), LONGEST_LIFE_S),
            from_neighbour=given("from_neighbour"),
            source="service",
            loader=None,
        )
        if answer.status not in STATUSES or answer.hit != (answer.best is not None):
            raise ValueError(f"an item has the status {str(answer.status)[:40]!r}")
        if not math.isfinite(answer.expires_s):
            raise ValueError("an item expires at no time")
        if not _OPERATOR.fullmatch(answer.key):
            raise ValueError("an item is of no operator")
        if not type(answer.state) is type(answer.reason) is type(answer.stage) is str:
            raise ValueError("an item's state, reason or stage is no text")
        if not (type(answer.best) in _DOCUMENT and type(answer.price) in _DOCUMENT):
            raise ValueError("an item's best or price is none")
        if answer.best is not None:
            _check_best(answer.best)
        if answer.from_neighbour is not None:
            _check_mark(answer.from_neighbour)
        if answer.price is not None and "agreement" in answer.price:
            _check_agreement(answer.price["agreement"])
        return answer

    def to_json(self) -> dict[str, Any]:
        """The document for :meth:`from_json`."""
        return {name: value for name in _KEPT if (value := getattr(self, name)) not in (None, "")}

    @property
    def differences(self) -> str:
        """How the target on which it was measured differs from this one, in words; empty if it is this
        one."""
        rows = (self.from_neighbour or {}).get("differs", {})
        return "; ".join(f"{name} {row['neighbour']}, here {row['asked']}" for name, row in rows.items())


@dataclass(frozen=True)
class LookupReply:
    """The reply to one lookup: an answer for each operator and each related one, in order; hits that jobs
    asked next; manifests (with signature and signer) by artifact; ``signers`` by SHA-256; artifacts revoked
    since ``revoked_since``. ``revoked_until``: the next ``revoked_since``."""

    answers: Sequence[Answer]
    related: Sequence[Answer] = ()
    next: Sequence[Answer] = ()
    manifests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    signers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()
    all_revoked: bool = False
    entry_life_s: float = 0.0
    revoked_since: str = ""
    revoked_until: str = ""

    @classmethod
    def with_answers(cls, reply: LookupReply | None, answers: Sequence[Answer]) -> LookupReply:
        """The reply with other answers; without a reply, these alone."""
        return cls(answers) if reply is None else replace(reply, answers=answers)


_DOCUMENT = (dict, type(None))
_KEPT = (
    *("key", "status", "best", "state", "reason", "price", "stage", "final", "expires_s"),
    "from_neighbour",
)


def _check_mark(mark: Mapping[str, Any]) -> None:
    if not _TARGET.fullmatch(mark["target"]):
        raise ValueError("a neighbour has no target's key")
    for name, row in mark["differs"].items():
        if not isinstance(name, str) or any(
            not isinstance(row[side], int | None) for side in ("asked", "neighbour")
        ):
            raise ValueError("a neighbour's differences are none")


class RememberedAnswer(NamedTuple):
    """An answer in memory. ``until``: on the monotonic clock; ``uses``: how often it was given since the last
    report, and before (of a miss: how often it was asked for)."""

    answer: Answer
    until: float
    uses: list[int]


def _check_agreement(agreement: Mapping[str, Any]) -> None:
    if not AGREEMENT.fullmatch(agreement["id"]):
        raise ValueError("an agreement has no name")
    for name in ("per_use_micros", "uses", "left_micros"):
        if type(agreement[name]) is not int or agreement[name] < 0:
            raise ValueError(f"an agreement's {name} is no number")
    if not math.isfinite(agreement["expires_s"]):
        raise ValueError("an agreement expires at no time")


def _check_best(best: Mapping[str, Any]) -> None:
    if not SHA256.fullmatch(best["artifact"]):
        raise ValueError("a hit has no artifact's address")
    if not isinstance(best["implementation"], int):
        raise ValueError("a hit's implementation has no number")
    for name in TIMES:
        if not math.isfinite(best[name]) or best[name] < 0:
            raise ValueError(f"a hit's {name} is no time")
    if "evidence" in best:
        _check_evidence(best["evidence"])


def _check_evidence(evidence: Mapping[str, Any]) -> None:
    error, tolerance = evidence["max_error"], evidence["tolerance"]
    if error is not None and not (math.isfinite(error) and math.isfinite(tolerance)):
        raise ValueError("a hit's error is no number")
    texts = (evidence["tier"], evidence["signer"], *evidence["environment"].values())
    if not all(type(text) is str for text in texts):
        raise ValueError("a hit's tier, signer or environment is no text")
