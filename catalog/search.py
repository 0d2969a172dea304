"""Searching operators: what was typed (``search_words``) as a condition, one for lists, REST and
subscriptions."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from catalog.models import SHARED, Best, Operator
from catalog.search_words import SearchTerm, SearchWord, ServedBy, SizeBound, matches, read_words


@dataclass(frozen=True)
class Words:
    """What somebody types to find operators; all of it must hold."""

    words: tuple[SearchTerm, ...] = ()

    @classmethod
    def of(cls, text: str) -> Words:
        return cls(read_words(text))

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
