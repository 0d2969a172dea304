"""Everything that writes kernels. Views, pages and commands call these."""

from tuning.kernels.deciding import approve, may_decide, reject, revoke
from tuning.kernels.shipped import approve_all, submit_examples
from tuning.kernels.states import NotAllowed, NotInThatState
from tuning.kernels.submitting import Submission, may_edit, may_submit, submit

__all__ = [
    "NotAllowed",
    "NotInThatState",
    "Submission",
    "approve",
    "approve_all",
    "may_decide",
    "may_edit",
    "may_submit",
    "reject",
    "revoke",
    "submit",
    "submit_examples",
]
