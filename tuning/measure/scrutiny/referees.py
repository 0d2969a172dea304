"""References of input sets, asked of a child of the trusted library zygote: no measured one has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from tuning.measure.judging.check import Reference
from tuning.measure.judging.reference import methods
from tuning.measure.outcome import Status
from tuning.measure.sandbox.process import Bounds, ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.specimen import ReferenceAnswers, Specimen, Staging

REFERENCE_S = 30.0
BOUNDS = Bounds(memory_bytes=16 << 30, disk_bytes=512 << 20)


class Referees:
    """Of one operator. ``method`` is the one that worked for it, and the only one from then on."""

    def __init__(self, specimen: Specimen, default_route: str, library: Callable[[], Zygote]) -> None:
        self.specimen = specimen
        self.method = ""
        self._methods = methods(specimen.operator, default_route)
        self._library = library

    def of(self, sets: Sequence[Mapping[int, np.ndarray]]) -> list[list[Reference]]:
        """References of sets that lie in the parent's memory. Raises ChildFailed where none can be had."""
        with closing(Staging(self.specimen.operator, len(sets))) as staging:
            staging.put(sets)
            return self.judge(staging.memory.fd, staging.request())

    def judge(self, sets_fd: int, sets: Sequence[Mapping[int, Any]]) -> list[list[Reference]]:
        """References of sets in a memory file, by the places of their tensors. Raises ChildFailed."""
        reasons = []
        for method in (self.method,) if self.method else self._methods:
            with closing(ReferenceAnswers(self.specimen.operator, len(sets))) as answers:
                try:
                    reply = self._ask(method, sets_fd, sets, answers)
                except ChildFailed as failed:
                    reply = {"error": failed.detail}
                if "error" not in reply:
                    self.method = method
                    return answers.read()
                reasons.append(f"{method}: {reply['error']}")
        why_not = "; ".join(reasons) or "no method knows it"
        raise ChildFailed(Status.UNSUPPORTED, f"no reference can be computed: {why_not}")

    def _ask(
        self, method: str, sets_fd: int, sets: Sequence[Mapping[int, Any]], answers: ReferenceAnswers
    ) -> dict[str, Any]:
        specimen, library = self.specimen, self._library()
        request = {
            "do": "reference",
            "method": method,
            "operator": specimen.operator.to_json(),
            "setting": specimen.setting.to_json(),
            "constants": specimen.request()["constants"],
            "sets": sets,
            "outputs": answers.request(),
        }
        child = library.spawn(request, [specimen.inputs.fd, answers.memory.fd, sets_fd], BOUNDS)
        try:
            return child.ask(None, REFERENCE_S)
        finally:
            library.forget(child)
