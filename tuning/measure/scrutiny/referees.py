"""References of input sets, asked of a child of the trusted library zygote: no measured one has them.

What takes the host long (``fresh_sets.is_heavy``) is computed on the device, where the target is one: the
same walk in float64 over the same bits. It is believed once the host has computed one set of the operator
too and both say the same; where they do not, or the device fails, the host computes all of them.

PyTorch's own references are believed once somebody else has computed the same
(:mod:`tuning.measure.judging.confirming`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from opatlas.identity import Operator
from tuning.measure.device.watch import CONTEXT_BYTES, DeviceWatch
from tuning.measure.judging.agreement import disagreement
from tuning.measure.judging.check import Reference
from tuning.measure.judging.parts import OutputPart
from tuning.measure.judging.reference import methods
from tuning.measure.outcome import Status
from tuning.measure.sandbox.process import Bounds, ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.scrutiny.fresh_sets import is_heavy
from tuning.measure.shared_tensors import BUFFERS
from tuning.measure.specimen import ReferenceAnswers, Specimen, Staging

REFERENCE_S = 30.0
BOUNDS = Bounds(memory_bytes=16 << 30, disk_bytes=512 << 20)
ON_DEVICE = "torch64"
"""The method that a device can compute: its operations are PyTorch's."""
BY_BUILDERS = "torch64"
"""The method that shares code with PyTorch eager."""

Sets = Sequence[Mapping[int, Any]]
"""The places of their tensors in a memory file."""

_ITS_OWN = frozenset({"float64", "complex128"})


def _device_computes(operator: Operator) -> bool:
    """Whether the device is worth its context, and computes them otherwise than the kernels that are judged:
    what is of float64 itself would be judged by the very calls that the default makes there."""
    values = (*operator.inputs, *operator.produced)
    return is_heavy(operator) and not any(value.dtype in _ITS_OWN for value in values)


class Referees:
    """Of one operator. ``method`` is the one that worked for it, and the only one from then on.
    ``confirmed_by``: who else computed the same, where PyTorch did. ``why_not_there``: why the device
    computes none of its references any more."""

    def __init__(
        self,
        specimen: Specimen,
        default_route: str,
        library: Callable[[], Zygote],
        device: DeviceWatch | None = None,
    ) -> None:
        self.specimen = specimen
        self.method = ""
        self.confirmed_by = ""
        self.why_not_there = ""
        self._methods = methods(specimen.operator, default_route)
        self._library = library
        self._device = device if _device_computes(specimen.operator) else None
        self._believed = False

    def of(
        self, sets: Sequence[Mapping[int, np.ndarray]], part: OutputPart | None = None
    ) -> list[list[Reference]]:
        """References of sets that lie in the parent's memory, or of one part of each. Raises ChildFailed
        where none can be had."""
        if part is not None:
            return self._first_method(lambda method: self._of_part(method, sets, part))
        with closing(Staging(self.specimen.operator, len(sets))) as staging:
            staging.put(sets)
            return self.judge(staging.memory.fd, staging.request())

    def judge_specimen(self) -> list[list[Reference]]:
        """References of all of the specimen's sets; of those beyond the timed ones in its part, where it has
        one. Raises ChildFailed."""
        specimen = self.specimen
        fd, sets = specimen.inputs.fd, specimen.request()["sets"]
        if specimen.part is None:
            return self.judge(fd, sets)
        part, further = specimen.part, specimen.own[BUFFERS:]

        def both(method: str) -> list[list[Reference]]:
            # The part first: it is nothing beside the others, where nobody agrees with a method.
            cut = self._of_part(method, further, part)
            return [*self._by(method, fd, sets[:BUFFERS]), *cut]

        return self._first_method(both)

    def judge(self, sets_fd: int, sets: Sets) -> list[list[Reference]]:
        """References of sets in a memory file, by the places of their tensors. Raises ChildFailed."""
        return self._first_method(lambda method: self._by(method, sets_fd, sets))

    def _by(self, method: str, sets_fd: int, sets: Sets) -> list[list[Reference]]:
        found = self._from_device(sets_fd, sets) if method == ON_DEVICE else None
        return self._ask(method, sets_fd, sets) if found is None else found

    def _of_part(
        self, method: str, sets: Sequence[Mapping[int, np.ndarray]], part: OutputPart
    ) -> list[list[Reference]]:
        """Of one part of each set; its inputs, constants too, are handed over with each."""
        constants = self.specimen.constants
        with closing(Staging(part.operator, len(sets))) as staging:
            staging.put([part.spans({**constants, **spans}) for spans in sets])
            found = self._ask(method, staging.memory.fd, staging.request(), part=part)
        return [[part.of(one) for one in references] for references in found]

    def _first_method(self, work: Callable[[str], list[list[Reference]]]) -> list[list[Reference]]:
        """By the method that is known to work, or the first that does. Raises ChildFailed."""
        reasons = []
        for method in (self.method,) if self.method else self._methods:
            try:
                found = work(method)
            except ChildFailed as failed:
                reasons.append(f"{method}: {failed.detail}")
                continue
            self.method = method
            return found
        why_not = "; ".join(reasons) or "no method knows it"
        raise ChildFailed(Status.UNSUPPORTED, f"no reference can be computed: {why_not}")

    def facts(self) -> dict[str, str]:
        """How references were computed, and where not by the host; for who reads a trial."""
        there = {"reference_on": self._device.gpu.name} if self._device and self._believed else {}
        why_not = {"reference_not_on_device": self.why_not_there} if self.why_not_there else {}
        confirmed = {"reference_confirmed_by": self.confirmed_by} if self.confirmed_by else {}
        return {"reference": self.method, **confirmed, **there, **why_not}

    def _from_device(self, sets_fd: int, sets: Sets) -> list[list[Reference]] | None:
        """None where the host has to compute them. Raises ChildFailed where the host cannot either."""
        device = self._device
        if device is None or self.why_not_there or device.doubted or device.room_bytes <= CONTEXT_BYTES:
            return None
        try:
            found = self._ask(ON_DEVICE, sets_fd, sets, device)
        except ChildFailed as failed:
            device.saw(failed.status)
            self.why_not_there = failed.detail
            return None
        if not self._believed and sets:
            [known] = self._ask(ON_DEVICE, sets_fd, sets[:1])
            if why := disagreement(found[0], known):
                device.saw(Status.CRASHED)  # it may not compute as it should
                self.why_not_there = f"{device.gpu.name} and the host disagree: {why}"
                return None
            self._believed = True
        return found

    def _ask(
        self,
        method: str,
        sets_fd: int,
        sets: Sets,
        device: DeviceWatch | None = None,
        part: OutputPart | None = None,
    ) -> list[list[Reference]]:
        """By one method, of a child of its own. Raises ChildFailed."""
        specimen, library, bounds = self.specimen, self._library(), BOUNDS
        operator = specimen.operator if part is None else part.operator
        request = {
            "do": "reference",
            "method": method,
            "operator": operator.to_json(),
            "setting": specimen.setting.to_json(),
            "constants": specimen.request()["constants"] if part is None else {},
            "sets": sets,
            "confirm": method == BY_BUILDERS and device is None and not self.method,
        }
        if device is not None:
            bounds = replace(BOUNDS, device_bytes=device.room_bytes)
            request["device"] = device.torch_device
            request["device_bytes"] = [bounds.device_bytes, device.total_bytes]
        with closing(ReferenceAnswers(operator, len(sets))) as answers:
            request["outputs"] = answers.request()
            child = library.spawn(request, [specimen.inputs.fd, answers.memory.fd, sets_fd], bounds)
            try:
                reply = child.ask(None, REFERENCE_S)
            finally:
                library.forget(child)
            if "error" in reply:
                raise ChildFailed(Status.UNSUPPORTED, str(reply["error"]))
            self.confirmed_by = self.confirmed_by or str(reply.get("confirmed_by", ""))
            return answers.read()
