"""docs/stories.md tells what the stories' tests walk, and has a picture of each panel."""

from tests.dashboard.pictures import MOST_BYTES
from tests.dashboard.stories.tales import PAGE, PICTURES, TALES, written


def test_the_page_says_what_is_walked() -> None:
    assert PAGE.read_text() == written(), "run `make stories`"


def test_each_panel_has_its_small_picture_and_no_other_lies_there() -> None:
    told = {tale.picture(panel) for tale in TALES for panel in tale.panels}
    assert {*PICTURES.glob("*")} == told
    assert max(path.stat().st_size for path in told) <= MOST_BYTES
    assert len({tale.theme for tale in TALES}) == 2
