"""Shapes of answers, derived from the dataclasses that selectors return and from models.

A row's names, types and meaning stand once, on its class: what a field means beside it as ``Annotated[int,
"Live ones."]``, what a property means in its docstring. :func:`shape` makes the serializer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from functools import cache
from typing import Any, get_type_hints

from django.utils.functional import cached_property
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework_dataclasses.field_utils import DataclassDefinition
from rest_framework_dataclasses.serializers import DataclassSerializer


@extend_schema_field(OpenApiTypes.OBJECT)
class Document(serializers.JSONField):
    """A JSON object."""


class KeyField(serializers.CharField):
    """Another row by its key: how answers name operators, targets and settings."""

    def to_representation(self, value: Any) -> str:
        return str(value.key)


class RowAnswer(DataclassSerializer[Any]):
    """Rows of a dataclass, every field of each."""

    using: dict[type, type[serializers.Serializer]] = {}

    @cached_property
    def dataclass_definition(self) -> DataclassDefinition[Any]:
        kind: Any = self.dataclass or self.Meta.dataclass  # type: ignore[attr-defined]
        return _definition(kind)

    def get_field_names(self) -> list[str]:
        """Those that :func:`shape` chose; a dataclass inside another shows its fields."""
        if meta := getattr(self, "Meta", None):
            return list(meta.fields)
        return _names_of(self.dataclass)

    def create_field(self, field_name: str, extra_kwargs: dict[str, Any]) -> serializers.Field:
        source = extra_kwargs.get("source", field_name)
        kind: Any = self.dataclass_definition.dataclass_type
        meaning = _meanings(kind).get(source)
        told = {"help_text": meaning} if meaning else {}
        return super().create_field(field_name, {**told, **extra_kwargs})

    def build_dataclass_field(self, field_name: str, type_info: Any) -> tuple[type, dict[str, Any]]:
        if known := self.using.get(type_info.base_type):
            return known, {}
        return RowAnswer, {"dataclass": type_info.base_type}

    def build_relational_field(self, field_name: str, type_info: Any) -> tuple[type, dict[str, Any]]:
        return self.using.get(type_info.base_type, KeyField), {}


class ModelAnswer(serializers.ModelSerializer[Any]):
    """Rows of a model, to read: nobody writes through an answer."""

    def get_extra_kwargs(self) -> dict[str, Any]:
        read_only = set(self.Meta.fields) - set(self._declared_fields)  # type: ignore[attr-defined]
        return {name: {"read_only": True} for name in read_only}

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        if model_field.choices and model_field.blank:  # "" stands for any, and is none of the choices
            return serializers.CharField, {"read_only": True}
        return super().build_standard_field(field_name, model_field)

    def build_relational_field(self, field_name: str, relation_info: Any) -> Any:
        if any(column.name == "key" for column in relation_info.related_model._meta.fields):
            return KeyField, {"read_only": True, "allow_null": relation_info.model_field.null}
        return super().build_relational_field(field_name, relation_info)


def shape(
    kind: type,
    *derived: str,
    called: str = "",
    without: Collection[str] = (),
    using: Collection[type[serializers.Serializer]] = (),
    **given: str | serializers.Field,
) -> type[RowAnswer]:
    """The serializer of a dataclass or a named tuple: its fields, and those of its properties that are named.

    ``given`` shows one under another name (``route_hits="hits"``) or by a field made by hand; ``using`` says
    how dataclasses within it are shown where that is not by their fields alone, and models. ``called``: its
    name in the schema, where two classes have the same.
    """
    renamed = {name: source for name, source in given.items() if isinstance(source, str)}
    by_hand = {name: field for name, field in given.items() if not isinstance(field, str)}
    hidden = {*without, *renamed.values()}
    own = [name for name in _names_of(kind) if name not in hidden]
    meta = {
        "dataclass": kind,
        "ref_name": called or kind.__name__,
        "fields": list(dict.fromkeys([*own, *derived, *given])),
        "extra_kwargs": {name: {"source": source} for name, source in renamed.items()},
    }
    body = {
        "__doc__": kind.__doc__,
        "Meta": type("Meta", (), meta),
        "using": {_rows_of(one): one for one in using},
        **by_hand,
    }
    made: Any = type(RowAnswer)
    return made(f"{kind.__name__}RowAnswer", (RowAnswer,), body)


def _rows_of(made: Any) -> type:
    return made.Meta.dataclass if issubclass(made, RowAnswer) else made.Meta.model


@cache
def _definition(kind: Any) -> DataclassDefinition[Any]:
    """What the library goes by. An answer has no constructor: properties are among its fields, and no field
    has a default for which it might be left out."""
    returned = {name: get_type_hints(made).get("return") for name, made in _properties(kind).items()}
    types = get_type_hints(kind) | {name: hint for name, hint in returned.items() if hint is not None}
    return DataclassDefinition(kind, {name: dataclasses.field() for name in types}, types)


def _names_of(kind: Any) -> list[str]:
    return (
        [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
    )


@cache
def _meanings(kind: Any) -> dict[str, str]:
    """Field or property → what it means, for the schema."""
    hints = get_type_hints(kind, include_extras=True).items()
    found: dict[str, str] = {
        name: hint.__metadata__[0] for name, hint in hints if hasattr(hint, "__metadata__")
    }
    return found | {name: made.__doc__ for name, made in _properties(kind).items() if made.__doc__}


def _properties(kind: type) -> dict[str, Any]:
    members = {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}
    return {name: member.fget for name, member in members.items() if isinstance(member, property)}
