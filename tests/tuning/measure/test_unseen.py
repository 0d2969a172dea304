"""Children that take new values, and children that are done before anybody looked."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from opatlas.identity import Operator, Setting
from tuning.measure.bench import Limits
from tuning.measure.laboratory import Laboratory, zygote_of
from tuning.measure.sandbox.process import ChildFailed, Unseen
from tuning.measure.scrutiny.referees import Referees
from tuning.measure.specimen import Specimen
from tuning.measure.subject import Subject
from tuning.routes.base import BuiltArtifact


def test_what_ended_before_it_was_greeted_has_answered(
    lab: Laboratory, relu: Operator, setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References of a small operator take less than a loaded parent needs to look at who computes them."""
    opened = os.pidfd_open

    def late(pid: int, flags: int = 0) -> int:
        time.sleep(0.5)
        return opened(pid, flags)

    specimen = Specimen(relu, setting)
    monkeypatch.setattr(os, "pidfd_open", late)
    found = Referees(specimen, "", lambda: lab.zygotes["library"]).of([specimen.own[0]])
    specimen.close()
    assert len(found) == 1 and found[0][0].value.shape == (128, 128)


def test_who_ends_while_it_takes_new_values_is_found_out_at_once(
    lab: Laboratory, relu: Operator, setting: Setting, kernel: Callable[..., BuiltArtifact]
) -> None:
    artifact, limits = kernel("honest"), Limits(run_s=60.0)
    specimen = Specimen(relu, setting)
    zygote = lab.zygotes[zygote_of(artifact.manifest)]
    subject = Subject(zygote, specimen, artifact, limits.bounds, limits.run_s, 2)
    specimen.references = Referees(specimen, "", lambda: lab.zygotes["library"]).judge(
        specimen.inputs.fd, specimen.request()["sets"]
    )
    try:
        subject.open()
        subject.check()
        subject.bind_unseen()
        subject.staging.put(specimen.own[:2])
        took = subject.run_unseen(Unseen(2, poison=True, lead_in=False, spin=True))
        assert 0 < took.elapsed_ns < 5e9
        subject.live.pause()
        threading.Timer(0.3, os.kill, (subject.live.pid, signal.SIGKILL)).start()
        began = time.monotonic()
        with pytest.raises(ChildFailed, match="SIGKILL"):
            subject.run_unseen(Unseen(2, poison=True, lead_in=False, spin=True))
        assert time.monotonic() - began < 20.0
    finally:
        subject.close()
        specimen.close()
