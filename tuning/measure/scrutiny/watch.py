"""What timed calls leave behind, looked at in rounds that nobody can foresee, and after the last one."""

from __future__ import annotations

import secrets

from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.subject import Subject

ONE_ROUND_IN, MOST_LOOKS = 5, 4


class Watch:
    """Of one race: ``each_round`` is called after every round, ``end`` after the last.

    A look takes two steps: something is changed after one round, and what the next round's timed calls left
    is compared. Changed are the inputs, with all outputs poisoned, or a few outputs only, drawn by lot. The
    first look begins after the first round; ``further`` ones are drawn by lot too (large operators have none:
    a comparison takes longer than their calls; nor has our own code, which gains nothing).
    """

    def __init__(self, subject: Subject, further: bool) -> None:
        self._subject = subject
        self._left = MOST_LOOKS if further else 1
        self._changed = False

    def each_round(self, rounds: int) -> None:
        """Raises :class:`ChildFailed`, with its own runner as the culprit: of a race, many may be watched."""
        try:
            if self._changed:
                self._look()
            elif self._left and (rounds == 1 or secrets.randbelow(ONE_ROUND_IN) == 0):
                self._left -= 1
                self._change(kept=rounds > 1 and bool(secrets.randbits(1)))
        except ChildFailed as failed:
            failed.culprit = failed.culprit or self._subject.runner
            raise

    def end(self, *, thoroughly: bool) -> None:
        """Whoever stopped computing some time ago is found out here; ``thoroughly`` also who kept results."""
        assert self._subject.runner is not None
        for kept in (False, True) if thoroughly else (False,):
            if not self._changed:
                self._change(kept=kept)
            self._subject.runner.run_again()
            self._look()

    def _change(self, *, kept: bool) -> None:
        """``kept``: the inputs are left as they are."""
        if kept and self._subject.keeps_outputs:
            self._subject.spoil()
        else:
            self._subject.swap_and_poison()
        self._changed = True

    def _look(self) -> None:
        self._changed = False
        self._subject.check_timed()
