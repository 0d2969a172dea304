"""Searching operators: what was typed (``search_words``) as a condition, one for lists, REST and
subscriptions; and what of it can find nothing, which pages say and the others refuse.

``settings.OPATLAS_SEARCHED_ROUTES`` names the routes that there are (``tuning.routes.registry.ROUTES``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils.module_loading import import_string

from catalog.errors import RequestError
from catalog.models import SHARED, Best, Operator, Standing
from catalog.nearest import meant
from catalog.search_words import SearchTerm, SearchWord, ServedBy, SizeBound, matches, read_words


@dataclass(frozen=True)
class Words:
    """What somebody types to find operators; all of it must hold."""

    words: tuple[SearchTerm, ...] = ()

    @classmethod
    def of(cls, text: str) -> Words:
        return cls(read_words(text))

    @classmethod
    def checked(cls, text: str, where: str = "q") -> Words:
        """As :meth:`of`; raises :class:`RequestError` for what can find nothing."""
        words = cls.of(text)
        if said := next(words.in_vain(), None):
            raise RequestError(said, where=where)
        return words

    def in_vain(self) -> Iterator[str]:
        """What of it can find nothing, whatever there is: each in a sentence that says what is right."""
        for word in self.words:
            if isinstance(word, ServedBy) and not _is_route(word.route):
                yield f"There is no route “{word.route[:40]}”: {meant(word.route, _routes())}"
            elif isinstance(word, SearchWord) and word.is_strange:
                strange = f"“{word.texts[0][:40]}” finds nothing: sizes are asked for as dim>=1024"
                yield f"{strange}, and attributes are not searched."

    def condition(self, operator: str = "") -> Q:
        """As a condition on rows of operators, or on rows that have one in the column ``operator``."""
        found = Q()
        for word in self.words:
            found &= _condition(word, f"{operator}__" if operator else "")
        return found

    def match(self, operator: Operator) -> bool:
        """Whether one operator (``summary``, ``key`` and ``largest_dim`` loaded) is found."""
        if not matches(self.words, operator.summary, operator.key):
            return False
        others = Words(tuple(word for word in self.words if not isinstance(word, SearchWord)))
        return not others.words or Operator.objects.filter(others.condition(), pk=operator.pk).exists()


def _condition(word: SearchTerm, column: str) -> Q:
    if isinstance(word, SizeBound):
        return Q(**{f"{column}largest_dim__{word.lookup}": word.size})
    if isinstance(word, ServedBy):
        served = Best.objects.filter(rank=0, scope=SHARED, route=word.route).values("operator")
        return Q(**{f"{column}pk__in" if column else "pk__in": served})
    any_of = Q(*((f"{column}summary__icontains", text) for text in word.texts), _connector=Q.OR)
    return any_of | Q(**{f"{column}key__startswith": word.key}) if word.key else any_of


def _is_route(name: str) -> bool:
    """Whether anything is, or was, made by it: rows outlive the routes that made them."""
    return name in _routes() or Standing.objects.filter(route=name).exists()


def _routes() -> list[str]:
    return [route.name for route in _registry(settings.OPATLAS_SEARCHED_ROUTES)]


@lru_cache(maxsize=8)
def _registry(path: str) -> Any:
    return import_string(path)  # every route, and what it imports
