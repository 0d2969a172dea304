"""The two families of errors that a job can meet."""


def first_line(error: BaseException, most: int = 300) -> str:
    """The first line of a library's error that says anything, of ``most`` characters; else its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:most]


def printable(text: str, most: int = 300) -> str:
    """Somebody else's text in one line, of ``most`` characters that can be shown."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:most]


class OpatlasError(Exception):
    """Base of everything that Opatlas raises on purpose. ``str()`` is one clear sentence."""


class CallerError(OpatlasError):
    """The caller's fault: says what is wrong and what would be right. Nothing was changed.

    ``where`` points into the caller's document (``inputs[0].shape``) where that is known.
    """

    where: str = ""


class InvalidOperator(CallerError):
    """An operator that cannot be: unknown type, contradictory shapes, wrong dtype, out of bounds."""


class UnmappedOperator(InvalidOperator):
    """An operator that may well run, but that no entry can be of: an empty batch, a type that ONNX's operator
    does not take, more elements or dimensions than entries have, a size that the values decide. A job's
    client answers empty with this sentence."""


class InvalidTarget(CallerError):
    """A target or a setting that cannot be."""


class InvalidModel(CallerError):
    """A model that cannot be read: truncated, hostile, or with dimensions that are not given."""


class LoadError(OpatlasError):
    """An artifact that cannot be loaded here; says which need is not met."""
