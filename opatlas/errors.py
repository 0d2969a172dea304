"""The two families of errors that a job can meet."""


class OpatlasError(Exception):
    """Base of everything that Opatlas raises on purpose. ``str()`` is one clear sentence."""


class CallerError(OpatlasError):
    """The caller's fault: says what is wrong and what would be right. Nothing was changed.

    ``where`` points into the caller's document (``inputs[0].shape``) where that is known.
    """

    where: str = ""


class InvalidOperator(CallerError):
    """An operator that cannot be: unknown type, contradictory shapes, wrong dtype, out of bounds."""


class InvalidTarget(CallerError):
    """A target or a setting that cannot be."""


class InvalidModel(CallerError):
    """A model that cannot be read: truncated, hostile, or with dimensions that are not given."""


class LoadError(OpatlasError):
    """An artifact that cannot be loaded here; says which need is not met."""
