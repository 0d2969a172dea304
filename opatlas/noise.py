"""How noise is judged: every constant that says what a disturbed host is, when samples are enough, and which
difference between two times is one. No other module has such a constant.

A time's way: ``tuning/measure/timing/quiet.py`` asks the scheduler which rounds were disturbed, ``timer.py``
decides when there are enough quiet ones, ``stats.py`` makes a ratio with its interval of them,
``tuning/explore/results.usable`` drops what is no time, ``catalog/choosing.py`` says who is faster, and
``tuning/environments/revalidation.py`` whether a best has changed.
"""

import math

# --- A disturbed host: judged by what the kernel counts, never by times (``quiet.py``)

NOISY_SHARE = 0.04
"""Of a turn: a process that was kept waiting for more makes the round a disturbed one."""
PRESSED_SHARE = 0.25
"""Of a short stretch: where processes waited for less, nobody presses for the CPUs."""
STEAL_STEP_US = 10_000
"""µs: steal time is counted in steps of this length; one step says nothing about a short stretch,"""
SHORT_STEPS = 5
"""which is one of fewer steps than this."""

# --- A disturbed device: judged by what it says of itself (``tuning/measure/device``)

SLOWED_BY = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake")
"""Reasons of NVML: a round in which one of them held is a disturbed one. A power cap is written down and
counts: who always meets it runs at that speed."""

WARM_UP_NS = 50e6
"""Runs before the first sample on a device, by the clock: an idle one takes its clock down, and some tens of
milliseconds of work bring it up again."""

CLOCKS_AGREE = 0.5
"""Of what the parent's clock says that runs took, the handshake taken off: what the device's own clock must
say at least. Less was worked outside of the stream that is timed."""
CLOCKS_LOOKS = 5
"""Times that this is looked at before it is held against anybody: a child that was kept waiting after its
device had ended makes the parent's clock say more."""
CLOCKS_BATCH_NS = 4e6
"""A batch of about so long is held against the device's clock: what the child needs beside it is far less."""

LAUNCH_BOUND = 0.5
"""Of what a run takes by the parent's clock: where the device's says less, it waits for the host most of the
time."""
EVENT_STEP_US = 0.5
"""The device's events count in such steps: less is told by none."""
EACH_NS, MOST_EACH = 10e6, 10
"""Runs by the device's clock, each after its caches were emptied: so many of each buffer, or as many as fit
into so long."""

INVALID = math.inf
"""How disturbed such a round was: it never counts, however few are left."""

# --- A batch: long against the clock and the handshake, short against the scheduler (``timer.py``)

BATCH_NS = 1e6
"""ns: short, since a process that has just slept is rarely preempted in its first milliseconds."""
LONG_CALL_NS = 2e6
"""ns: above it one call is a batch; the handshake (tens of microseconds) is below 1 % of it."""
FIXED_SLACK_NS = 30e3
"""ns that a batch may cost once beyond the handshake of an empty one (a pool that wakes up)."""

# --- Enough samples, or samples that say nothing (``timer.py``)

CALM_BEFORE_S = 0.3
"""s that the first round of a race waits for a quiet host, at most;"""
CALM_BETWEEN_S = 0.04
"""and any other, after one that was disturbed;"""
LOOK_BETWEEN_S = 0.008
"""looking for so long: what is spent on looking is not spent on sampling."""
SLOWER_AFTER = 3
"""quiet rounds, below which no candidate is given up and none is called measured."""
SLOWER_RATIO = 1 / 3
"""To the default: so slow that more samples are a waste."""
CLEARLY_SLOWER = 0.8
"""Of the default, in every quiet round: given up."""
SETTLED_ROUNDS, SETTLED_ERROR = 12, 0.004
"""So many quiet rounds whose median ratio is known to this share (95 %) are enough to rank by: two processes
of one kernel differ by more, and who is ranked first is confirmed on others."""
MOST_ROUNDS = 200
"""of one race."""
RUNGS = (3, 6, 12)
"""Rounds of a heat after which those are dropped that are hardly faster than the leader;"""
DROPPED_BELOW = 0.01
"""which is a chance below this one."""
HEAT_PATIENCE_S = 1.5
"""Beside the rounds that a heat wants: for further ones where some were disturbed."""
ROUND_DEVIATION, ROUNDS_OF_PRIOR = 0.03, 3.0
"""Two runners' ratio spreads by this much between rounds, as far as fewer rounds than some know it better."""
QUIET_ONE_IN, CALM_AFTER = 8, 0.75
"""At most one round in so many was quiet, though nobody pressed for the CPUs after this share of them:
somebody has more threads than there are CPUs, and waiting longer changes nothing."""
LEAST_DISTURBED_ONE_IN = 3
"""Where too few rounds were quiet, the least disturbed of so many count."""
DISTURBED_SHARE = 0.5
"""Of the rounds: with more disturbed ones, a time is looked at twice;"""
UNUSABLE_INTERVAL, UNUSABLE_OF_OURS = 1.5, 3.0
"""ratio_high ÷ ratio_low, above which samples of such a host say nothing: of what somebody submitted; and of
our own code, which they only rank, with its interval (a compiler's 6.7× was left for a library's 1.8× as it
lay between 5 and 9)."""

# --- From samples to an interval (``stats.py``)

CONFIDENCE = 0.95
"""Of every interval; no figure needs to say it again."""
DEVIATIONS = 1.959964
"""Half of such an interval of a normal distribution, in standard deviations."""
RESAMPLES = 1000
"""of the bootstrap: the bounds' own error is then a tenth of the interval's width."""
BETWEEN_PROCESSES = 0.01
"""The same recipe in two processes differs by about this much for good (where its memory happens to lie):
measured as the spread of 20 ratios of PyTorch's own call against itself. No number of samples tells it."""
SITTINGS, SITTINGS_OF_PRIOR = 3, 4.0
"""of fresh processes in which finalists run: a process keeps its luck for its whole life. How far sittings
of one runner lie apart is drawn towards what all runners of its race show as if that had been seen in so many
more;"""
RACES_OF_PRIOR, MOST_OF_ONE = 2.0, 4.0
"""and what they show, one of them at most so many times what most do, towards ``BETWEEN_PROCESSES``, as if
that had been seen in so many."""
UNKNOWN_BETWEEN = 0.05
"""What processes differ by where nothing has been learnt of this machine yet (a shared virtual one: 7 to 13
%; a quiet one: 1 %): a first result's interval has to say something for both."""
LEAST_FREEDOM, LEARNT_SHARE = 4, 0.2
"""Sittings beyond one of each runner from which a final teaches what processes differ by here; and its share
beside all that was learnt before."""
BETWEEN_OCCASIONS = 0.5
"""Of the variance between sittings: by as much two races of the same artifacts, minutes apart, differ beyond
it. Measured on a shared virtual machine (26 ratios of 8 operators, each raced on 6 to 12 occasions by several
laboratories): whose laboratory it was made no difference, when it was did; without it 86 to 88 % of the
intervals held."""
MOST_SITTINGS = 7
"""of a final whose first two are not told apart."""

# --- A difference (``choosing.py``, ``worth.py``, ``tuning/statistics/comparing.py``; plans:
# ``opatlas/plan``, ``opatlas/graph/fusion``)

MARGIN = 0.02
"""Two runs of the same code differ by about this much between days; less is no difference."""
LEAST_GAIN = 0.005
"""Of a slice of tuning: below, no race could tell the tuned one from the untuned."""
MOST_CONFIDENT = 0.999
"""What an interval that leaves nothing open is called: nobody measured for ever."""
