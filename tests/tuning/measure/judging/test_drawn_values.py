"""Every operator type has a row in the table of what is drawn, and the page says what the table says."""

from __future__ import annotations

from opatlas.identity.operator_types import TYPES
from tests.hostile.cheats.document import CHEATS
from tests.tuning.measure.judging import shares
from tests.tuning.measure.judging.drawn_values import HEADING, section
from tests.tuning.measure.judging.page import written
from tuning.measure.judging.drawing.kinds import BESIDE, KINDS
from tuning.measure.judging.drawing.roles import BY_TYPE, OTHERS, ROLES, TRAINED


def test_every_operator_type_has_a_row() -> None:
    assert not set(TYPES) - set(BY_TYPE), "say in drawing/roles.py what their inputs are drawn as"


def test_rows_are_of_known_types_roles_and_kinds() -> None:
    assert set(BY_TYPE) <= set(TYPES)
    used = {role for roles in (*BY_TYPE.values(), TRAINED, OTHERS) for role in roles}
    assert used == set(ROLES)
    assert {kind for role in ROLES.values() for kind in role.kinds} == set(KINDS)
    assert {kind for cheat in CHEATS for kind in cheat.values} <= {*KINDS, *BESIDE}


def test_the_page_says_what_is_drawn() -> None:
    assert written(HEADING) == section(), "run: python -m tests.tuning.measure.judging.drawn_values"


def test_the_page_sums_up_the_shares() -> None:
    assert written(shares.HEADING) == shares.section(), "run: python -m tests.tuning.measure.judging.shares"
