"""Everything that writes kernels. Views, pages and commands call these."""

from tuning.kernels.again import evaluate_again, why_not_again
from tuning.kernels.deciding import approve, may_decide, reject, revoke
from tuning.kernels.shipped import approve_all, submit_examples
from tuning.kernels.states import KernelNotAllowed, NotInThatState
from tuning.kernels.submitting import Submission, may_edit, submit
