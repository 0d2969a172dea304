"""The form for submitting or editing a hand-written kernel."""

from __future__ import annotations

import json
from typing import Any

from django import forms

from tuning.kernels.models import LANGUAGES, Kernel, KernelVersion
from tuning.kernels.services import Submission
from tuning.routes.manual.flags import OF_DEVICE_CODE, OF_PROCESSORS

_FIELD_OF = {
    "op": "operators",
    "pattern": "constraints",
    "attributes": "constraints",
    "inputs": "constraints",
    "outputs": "constraints",
}
"""Place of an error in a submission → the form's field."""


_CONSTRAINTS = """\
{
  "attributes": {"axis": -1},
  "inputs": [
    {"dtype": "float32",
     "contiguous": true}
  ]
}"""
_SOURCE = """\
#include "opatlas_operator.h"

int opatlas_run(const opatlas_tensor *tensors, int32_t n, const opatlas_threads *threads, void *state)
{
    …
    return 0;
}"""


_LAUNCH = """\
{
  "run": [
    {"function": "softmax",
     "grid": ["IN0_SIZE // IN0_LAST1", 1, 1],
     "block": [256, 1, 1],
     "arguments": [{"input": 0}, {"output": 0}]}
  ]
}"""


def _mono(rows: int, placeholder: str = "") -> forms.Textarea:
    return forms.Textarea(
        {"rows": rows, "class": "mono", "spellcheck": "false", "wrap": "off", "placeholder": placeholder}
    )


class KernelForm(forms.Form):
    """One version of a kernel. The service's errors appear beside their fields."""

    name = forms.CharField(label="Name", max_length=80, help_text="Lower case: <code>softmax-avx2</code>")
    language = forms.ChoiceField(label="Language", choices=LANGUAGES)
    author = forms.CharField(label="Author", max_length=200)
    licence = forms.CharField(
        label="Licence", max_length=60, help_text="An SPDX name: <code>MIT</code>, <code>Apache-2.0</code>"
    )
    description = forms.CharField(
        label="Description", max_length=500, required=False, help_text="One sentence for whoever decides."
    )
    operators = forms.CharField(
        label="Operators that it serves",
        help_text="ONNX types with commas: <code>Softmax</code>; fused as <code>Conv+Relu</code>",
    )
    constraints = forms.CharField(
        label="Constraints on attributes, shapes and element types",
        required=False,
        widget=_mono(9, _CONSTRAINTS),
        help_text="JSON; empty serves every operator of these types.",
    )
    flags = forms.CharField(
        label="Compiler flags", required=False, help_text="Separated by blanks: <code>-O3 -mavx2 -mfma</code>"
    )
    example = forms.CharField(
        label="Example operator",
        required=False,
        max_length=100,
        help_text="The key of an operator to try it on first (<code>o1:…</code>); else one that it matches.",
    )
    launch = forms.CharField(
        label="Launch",
        required=False,
        widget=_mono(9, _LAUNCH),
        help_text="JSON: which functions run on which grids. Numbers may be expressions over the operator's "
        "macros.",
    )
    source = forms.CharField(
        label="Source",
        strip=False,
        widget=_mono(26, _SOURCE),
        help_text="Defines <code>opatlas_run</code>, or <code>__global__</code> functions in CUDA C++; "
        "<code>opatlas_operator.h</code> has the interface, and the operator's shapes as constants.",
    )

    def clean(self) -> dict[str, Any]:
        """Shows all errors at once, not one for each try."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for problem in self.submission().problems():
            field = self._field_at(problem.where)
            if field is None or field not in self.errors:
                self.add_error(field, str(problem))
        return cleaned

    def clean_launch(self) -> dict[str, Any] | None:
        return self._object("launch", "A launch is") or None

    def clean_constraints(self) -> dict[str, Any]:
        found = self._object("constraints", "Constraints are")
        if "op" in found:
            raise forms.ValidationError("The operators' types stand in the field above, not under “op”.")
        return found

    def _object(self, name: str, subject: str) -> dict[str, Any]:
        """A field's JSON object; empty where nothing was written."""
        text = self.cleaned_data[name].strip()
        try:
            found = json.loads(text or "{}")
        except ValueError as error:
            raise forms.ValidationError(f"This is not JSON: {error}.") from error
        except RecursionError as error:
            raise forms.ValidationError("This JSON is nested too deeply.") from error
        if not isinstance(found, dict):
            raise forms.ValidationError(f"{subject} one JSON object: {{…}}.")
        return found

    def clean_operators(self) -> str | list[str]:
        names = [name for part in self.cleaned_data["operators"].split(",") if (name := part.strip())]
        if not names:
            raise forms.ValidationError("Name at least one operator type.")
        return names[0] if len(names) == 1 else names

    def clean_source(self) -> str:
        # Browsers send every line's end as two characters.
        text: str = self.cleaned_data["source"].replace("\r\n", "\n")
        return text

    def submission(self, name: str | None = None) -> Submission:
        """The filled-in submission; ``name``: that of the edited kernel."""
        given = self.cleaned_data  # without what is wrong by itself: that is said beside its field already
        return Submission(
            name=name or given.get("name", ""),
            source=given.get("source", ""),
            pattern={"op": given.get("operators", ""), **given.get("constraints", {})},
            language=given.get("language", "c"),
            flags=given.get("flags", "").split(),
            launch=given.get("launch"),
            author=given.get("author", ""),
            licence=given.get("licence", ""),
            description=given.get("description", ""),
            example=given.get("example", ""),
        )

    def refuse(self, message: str, where: str) -> None:
        """Put the service's error beside its field."""
        self.add_error(self._field_at(where), message)

    def _field_at(self, where: str) -> str | None:
        """The field for a place in a submission; None: all of it."""
        parts = where.replace("[", ".").split(".")
        named = (_FIELD_OF.get(part, part) for part in reversed(parts))
        return next((name for name in named if name in self.fields), None)


def filled_from(version: KernelVersion) -> dict[str, Any]:
    """A form's initial values: those of the version that is edited."""
    pattern = dict(version.pattern)
    types = pattern.pop("op", "")
    kernel: Kernel = version.kernel
    return {
        "name": kernel.name,
        "language": version.language,
        "author": version.author,
        "licence": version.licence,
        "description": kernel.description,
        "operators": types if isinstance(types, str) else ", ".join(types),
        "constraints": json.dumps(pattern, indent=2) if pattern else "",
        "flags": " ".join(version.flags),
        "launch": json.dumps(version.launch, indent=2) if version.launch else "",
        "example": version.example.key if version.example else "",
        "source": version.source,
    }


def allowed_flags() -> list[tuple[str, tuple[str, ...]]]:
    """By language, shown beside the field."""
    return [("C and C++", OF_PROCESSORS), ("CUDA C++", OF_DEVICE_CODE)]
