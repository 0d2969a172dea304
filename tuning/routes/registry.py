"""Every route there is, in the order in which they are tried. Adding one is a line here."""

from tuning.routes.base import Route

ROUTES: tuple[Route, ...] = ()
