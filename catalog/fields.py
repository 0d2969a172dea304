"""A JSON column that returns exactly what was stored, and a count of a stored list's numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import F, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Least, Length, Replace

if TYPE_CHECKING:
    _Text = models.TextField[Any, Any]
else:
    _Text = models.TextField


class ExactJSONField(_Text):
    """JSON kept as its canonical text (sorted keys, no spaces).

    PostgreSQL's ``jsonb`` rewrites numbers (``1e22`` comes back as an integer, ``-0.0`` as ``0.0``) and
    refuses ``Infinity``: a graph or a manifest read back from it could have another key than the one it was
    stored under. Nothing searches inside these documents, so text loses nothing.
    """

    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    description = "JSON document, kept as canonical text"

    def from_db_value(self, value: str | None, expression: object, connection: object) -> Any:
        return None if value is None else json.loads(value)

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))

    def to_python(self, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    def value_to_string(self, obj: models.Model) -> Any:
        return self.get_prep_value(self.value_from_object(obj))


def numbers_in(name: str) -> CombinedExpression:
    """How many numbers the list in an :class:`ExactJSONField` has, counted by the database: its canonical
    text has a comma fewer, and an empty one is two characters long."""
    text = models.TextField()
    commas = Length(name) - Length(Replace(F(name), Value(","), Value(""), output_field=text))
    return commas + Least(Value(1), Length(name) - 2)
