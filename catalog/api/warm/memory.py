"""Answers lookups from this process's memory, with hits as Django writes them.

It learns who may ask what only from Django's answers (:class:`Lesson`); hits come from those, or from the
statement that Django would use. A hit is valid until a recall concerns it (``catalog.lookup.recalls``). The
memory answers only if Django would give the same bytes: every operator is a hit for this organisation, place
and accepted kinds, nothing is charged, and nothing is waited for. All other requests go to Django.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from django.utils import timezone

from catalog import models
from catalog.api.lookup_answer import (
    PlaceWords,
    beside,
    joined,
    joined_best,
    manifest_json,
    result_text,
    signer_json,
)
from catalog.api.lookup_json import ParsedLookup
from catalog.best.revoked import lately_revoked, revocations
from catalog.best.served import Accepts, Hit, find_bests, scopes_of
from catalog.best.stages import is_reached
from catalog.best.vouching import find_damaged
from catalog.charging import charging
from catalog.errors import StoreError
from catalog.lookup.lookups import EVIDENCE, MANIFEST, NEXT, RELATED, LookupAnswer, keys_to_come
from catalog.lookup.recalls import Recalls
from catalog.lookup.results import Result
from catalog.lookup.shelf import Shelf
from catalog.selectors.targets import HERE
from catalog.usage.journal_line import hit_text, said_text
from opatlas.quick_json import json_bytes

LESSON = "opatlas.lesson"
"""The key in a request's environ under which a view leaves a lesson."""

_HIT_BYTES = 2_000  # a hit beside its texts, the dicts' share in it
_ASK_BYTES, _ITEM_BYTES = 1_000, 200


@dataclass(frozen=True)
class Lesson:
    """A lookup that Django has answered, and the caller."""

    key: models.ApiKey
    parsed: ParsedLookup
    answer: LookupAnswer


class WarmAsk(NamedTuple):
    """A checked request, as far as the memory needs it."""

    target: str  # its key, or ``here``
    setting: str  # its key, or nothing: the target's own
    accepts: int
    keys: tuple[str, ...]
    calls: tuple[float, ...]
    related: tuple[str, ...]
    job: str  # as JSON
    parsed: ParsedLookup  # without what is above
    lasts: bool  # nothing but hits and the standing decides on the answer
    weight_bytes: int

    @property
    def question(self) -> Hashable:
        """The same for all equal requests, however they were written; with its place."""
        asked = self.parsed
        return (
            *(self.accepts, self.keys, self.calls, self.related, self.job),
            *(asked.include, asked.known, asked.revoked_since, asked.wait_s, asked.wait_for),
        )


class WarmStanding(NamedTuple):
    """What answers depend on beside their hits; while it is unchanged, so are they."""

    changed: int  # the last look that found anything recalled
    served: frozenset[int]  # targets
    revoked: tuple[tuple[str, str], ...]  # as all are told
    is_free: bool  # nothing has a price, nor will have one


class WarmAnswer(NamedTuple):
    """An answer that is valid in this look, if ``said`` is in the journal before it leaves."""

    body: bytes
    said: bytes  # for ``recording.journal_said``; empty: nothing was asked for
    lasts: bool  # it is good for as long as the standing is the same


class _WarmMade(NamedTuple):
    """An answer as last made."""

    look: int
    standing: WarmStanding
    answer: WarmAnswer
    weight_bytes: int


class _AcceptsNumber(NamedTuple):
    number: int
    weight_bytes: int


class _WarmHit(NamedTuple):
    look: int
    hit: Hit
    text: bytes
    metered: str  # for one call
    weight_bytes: int


class _WarmNothing(NamedTuple):
    """An operator without a best."""

    look: int
    weight_bytes: int = 400


class _WarmPlace(NamedTuple):
    look: int
    target: models.Target
    setting: models.Setting
    place: PlaceWords
    weight_bytes: int = 1_000


class _WarmArtifact(NamedTuple):
    look: int
    manifest: bytes
    signer: str
    signer_text: bytes
    weight_bytes: int


class WarmMemory:
    """One process's memory of at most ``most_bytes``; 0: none."""

    def __init__(self, recalls: Recalls, most_bytes: int) -> None:
        self._recalls = recalls
        self._hits: Shelf[tuple[int, int, int, int, str], _WarmHit] = Shelf(most_bytes * 3 // 4)
        self._artifacts: Shelf[str, _WarmArtifact] = Shelf(most_bytes // 8)
        self._places: Shelf[tuple[str, str], _WarmPlace] = Shelf(most_bytes // 64)
        self._nothing: Shelf[tuple[int, int, int, int, str], _WarmNothing] = Shelf(most_bytes // 64)
        self._made: Shelf[Hashable, _WarmMade] = Shelf(most_bytes // 8)
        self._accepts: Shelf[Hashable, _AcceptsNumber] = Shelf(most_bytes // 64)
        self._numbers = count()

    def __len__(self) -> int:
        """The number of hits."""
        return len(self._hits)

    def ask(self, parsed: ParsedLookup, size_bytes: int = 0) -> WarmAsk | None:
        """None if no memory could answer it. ``size_bytes``: of the request's text."""
        keys = tuple(item.key for item in parsed.operators)
        related = tuple(item.key for item in parsed.related)
        named = {*keys, *related}
        if (
            len(named) < len(keys) + len(related)  # one twice is merged, and counted once
            or EVIDENCE in parsed.include
            or (related and RELATED not in parsed.include)  # they would be written down
        ):
            return None
        target, setting = parsed.target, parsed.setting
        return WarmAsk(
            target if isinstance(target, str) else target.key,
            "" if setting is None else setting if isinstance(setting, str) else setting.key,
            self._number_of(parsed.accepts),
            keys,
            tuple(item.calls for item in parsed.operators),
            related,
            json.dumps(parsed.job),
            replace(parsed, target="", setting=None, operators=(), related=()),
            parsed.revoked_since is None and parsed.include.isdisjoint((MANIFEST, NEXT)),
            size_bytes
            + _ASK_BYTES
            + _ITEM_BYTES * (len(named) + len(parsed.known))
            + _size_of(parsed.accepts),
        )

    def standing(self) -> WarmStanding:
        """The current one. No statement, except for what is read twice a second."""
        now = timezone.now()
        served = frozenset(target for target, until in self._recalls.served_until.items() if until > now)
        return WarmStanding(self._recalls.changed, served, lately_revoked(), not charging().may_charge())

    def answer(
        self,
        organisation_id: int,
        ask: WarmAsk,
        alone: bool,
        standing: WarmStanding,
        look: int,
        here: str | None,
    ) -> WarmAnswer | None:
        """``alone``: as ``GET …/best`` answers; ``look``: the current one; ``here``: the key of the target
        that this names in it. None: Django must answer. Nothing is written down yet."""
        target = here if ask.target == HERE else ask.target
        place = self._places.get((target or "", ask.setting))
        if place is None or place.look < self._recalls.everything:
            return None
        question = (organisation_id, place.target.pk, place.setting.pk, alone, ask.question)
        made = self._made.get(question)
        if made is not None and (
            made.look == look
            or (made.answer.lasts and made.standing is standing)  # as the front's replies do
        ):
            return made.answer
        answer = self._answered(organisation_id, place, ask, alone, standing, look)
        if answer is not None:
            weight = len(answer.body) + len(answer.said) + ask.weight_bytes
            self._made.put(question, _WarmMade(look, standing, answer, weight))
        return answer

    def _answered(
        self,
        organisation_id: int,
        place: _WarmPlace,
        ask: WarmAsk,
        alone: bool,
        standing: WarmStanding,
        look: int,
    ) -> WarmAnswer | None:
        first = (organisation_id, place.target.pk, place.setting.pk, ask.accepts)
        found = self._found(first, (*ask.keys, *ask.related)) or self._read(first, place, ask, look)
        if found is None:
            return None
        hits, related = found[: len(ask.keys)], found[len(ask.keys) :]
        coming = self._coming(first, ask) if NEXT in ask.parsed.include else []
        if coming is None or not self._may_serve(organisation_id, ask, hits, [*related, *coming]):
            return None
        texts = [one.text for one in hits]
        served = place.target.pk in standing.served
        told = revocations(scopes_of(organisation_id), ask.parsed.revoked_since)
        if alone:
            answer = joined_best(texts[0], joined(place.place, served, told, []))
        else:
            parts = self._parts(ask.parsed, hits, related, coming)
            if parts is None:
                return None
            answer = joined(place.place, served, told, parts)
        metered = [
            one.metered if calls == 1.0 else hit_text(one.hit, calls)
            for one, calls in zip(hits, ask.calls, strict=True)
        ]
        said = said_text(organisation_id, ask.job, metered).encode() if metered else b""
        # What is read twice a second may have become another since.
        lasts = ask.lasts and standing.is_free and lately_revoked() == standing.revoked
        return WarmAnswer(answer, said, lasts)

    def learn(self, lesson: Lesson, look: int) -> None:
        """``look``: the last one before the request began."""
        answer, parsed = lesson.answer, lesson.parsed
        organisation = lesson.key.organisation_id
        target, setting = answer.target, answer.setting
        place = _WarmPlace(look, target, setting, PlaceWords.of(target, setting))
        self._places.put((target.key, setting.key), place)
        if parsed.setting is None:
            self._places.put((target.key, ""), place)
        first = (organisation, target.pk, setting.pk, self._number_of(parsed.accepts))
        for result in (*answer.results, *answer.related, *answer.next):
            if result.status == "hit" and result.terms is None and result.neighbour is None:
                self._learn_hit((*first, result.key), result, look)
        # With manifests nothing is found of what is damaged either, and of what is mended no recall tells.
        if answer.without_best and MANIFEST not in parsed.include and not charging().may_charge():
            for key in answer.without_best:
                self._nothing.put((*first, key), _WarmNothing(look))
        self._learn_artifacts(answer, look)

    def _learn_hit(self, key: tuple[int, int, int, int, str], result: Result, look: int) -> _WarmHit:
        hit = result.best
        assert hit is not None
        held = self._hits.get(key)
        if held is None or not self._holds(held):
            text, metered = _fitted(result_text(result)), hit_text(hit, 1.0)
            weight = len(text) + len(metered) + _HIT_BYTES
            held = _WarmHit(look, hit, text, metered, weight)
            self._hits.put(key, held)
        return held

    def _learn_artifacts(self, answer: LookupAnswer, look: int) -> None:
        signers = {row.sha256: _fitted(json_bytes(signer_json(row))) for row in answer.signers}
        for row in answer.artifacts:
            text, signer = _fitted(json_bytes(manifest_json(row))), signers.get(row.signer, b"")
            weight = len(text) + len(signer) + 1_000
            self._artifacts.put(row.sha256, _WarmArtifact(look, text, row.signer, signer, weight))

    def _holds(self, one: _WarmHit) -> bool:
        recalls = self._recalls
        return one.look >= recalls.operators.get(one.hit.operator_id, recalls.everything)

    def _found(self, first: tuple[int, int, int, int], keys: Sequence[str]) -> list[_WarmHit] | None:
        """Hits for all of these, or None."""
        found, get = [], self._hits.get
        for key in keys:
            one = get((*first, key))
            if one is None or not self._holds(one):
                return None
            found.append(one)
        return found

    def _read(
        self, first: tuple[int, int, int, int], place: _WarmPlace, ask: WarmAsk, look: int
    ) -> list[_WarmHit] | None:
        """Hits for everything asked for; unknown ones are read as Django does (usually one statement). None
        if one has no best. Whether a hit is charged or damaged is checked each time."""
        known = {key: self._hits.get((*first, key)) for key in (*ask.keys, *ask.related)}
        new = [key for key, one in known.items() if one is None or not self._holds(one)]
        read = find_bests(new, place.target, place.setting, scopes_of(first[0]), ask.parsed.accepts)
        known |= {
            key: self._learn_hit((*first, key), Result(key, "hit", hit), look) for key, hit in read.items()
        }
        found = [one for key, one in known.items() if one is not None and (key in read or key not in new)]
        return found if len(found) == len(known) else None

    def _coming(self, first: tuple[int, int, int, int], ask: WarmAsk) -> list[_WarmHit] | None:
        """Hits of what jobs asked next, read each time (one statement); None if any of them is unknown
        here."""
        found, parsed = [], ask.parsed
        for key in keys_to_come(first[0], ask.keys, ask.related):
            one = self._hits.get((*first, key))
            if one is not None and self._holds(one):
                found.append(one)
                continue
            nothing = self._nothing.get((*first, key))
            known = nothing is not None and nothing.look >= self._recalls.changed
            if not known or MANIFEST in parsed.include:
                return None
        return found

    def _may_serve(
        self, organisation: int, ask: WarmAsk, hits: Sequence[_WarmHit], related: Sequence[_WarmHit]
    ) -> bool:
        """Whether nothing has a price, and nothing is to be waited for."""
        parsed = ask.parsed
        if parsed.wait_s > 0 and not all(
            one.hit.final or is_reached(one.hit.stage, parsed.wait_for) for one in hits
        ):
            return False
        batch = [(one.hit, calls) for one, calls in zip(hits, ask.calls, strict=True)]
        return not charging().concerns(organisation, [*batch, *((one.hit, 1.0) for one in related)])

    def _parts(
        self,
        parsed: ParsedLookup,
        hits: Sequence[_WarmHit],
        related: Sequence[_WarmHit],
        coming: Sequence[_WarmHit],
    ) -> list[bytes] | None:
        """The other parts of a ``POST /lookup`` answer; None if manifests are wanted that are not
        remembered."""
        manifests: dict[str, bytes] = {}
        signers: dict[str, bytes] = {}
        served: set[str] = set()
        if parsed.known or MANIFEST in parsed.include:
            served = {one.hit.artifact_sha256 for one in (*hits, *related, *coming)}
        if MANIFEST in parsed.include:
            artifacts = self._whole(served)
            if artifacts is None:
                return None
            new = artifacts.keys() - parsed.known
            manifests = {sha256: artifacts[sha256].manifest for sha256 in new}
            signers = {one.signer: one.signer_text for one in artifacts.values() if one.signer_text}
        return beside(
            [one.text for one in hits],
            [one.text for one in related],
            [one.text for one in coming],
            manifests=manifests,
            unchanged=tuple(sorted(served & parsed.known)) if parsed.known else None,
            signers=signers,
        )

    def _whole(self, addresses: set[str]) -> Mapping[str, _WarmArtifact] | None:
        found = {sha256: one for sha256 in addresses if (one := self._artifacts.get(sha256)) is not None}
        everything = self._recalls.everything
        if len(found) < len(addresses) or any(one.look < everything for one in found.values()):
            return None
        try:
            return None if find_damaged(addresses) else found
        except StoreError:
            return None  # Django says so

    def _number_of(self, accepts: Accepts | None) -> int:
        """A small number for what is accepted: hashing all of it would take longer than the rest. Numbers are
        never reused."""
        kinds, versions = (None, None) if accepts is None else (accepts.kinds, accepts.versions)
        said = (kinds, None if versions is None else frozenset(versions.items()))
        held = self._accepts.get(said)
        if held is None:
            held = _AcceptsNumber(next(self._numbers), 500 + _size_of(accepts))
            self._accepts.put(said, held)
        return held.number


def _fitted(text: bytes) -> bytes:
    """A copy: orjson's results hold eight kilobytes, however short they are."""
    return bytes(memoryview(text))


def _size_of(accepts: Accepts | None) -> int:
    versions = {} if accepts is None else accepts.versions or {}
    return sum(_ITEM_BYTES + len(name) + len(one) for name, one in versions.items())
