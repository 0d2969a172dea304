"""How it is learned: explorations, trials, workers, and the leases that keep them apart."""

from __future__ import annotations

from django.db import models

from catalog.fields import ExactJSONField
from catalog.models import (
    SHARED,
    Environment,
    Implementation,
    Method,
    Operator,
    Organisation,
    Purpose,
    ScopedKey,
    Setting,
    Target,
)
from tuning.priority import PRIORITIES, Priority, priority_name


class Stage(models.IntegerChoices):
    """What a slice of an exploration does; a lower stage always runs first."""

    FIRST = 0, "first result"  # the default, checked and timed: something to serve within seconds
    CONTEST = 1, "contest"  # every library route and each compiler's untuned output
    TUNE = 2, "tuning"  # searching compilers, in slices of at most 20 s


class State(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    UNSUPPORTED = "unsupported"
    DISCARDED = "discarded"
    DEAD = "dead"  # gave up after max_tries; the error is kept


class Exploration(ScopedKey):
    """The decision to explore, in the explore queue of its priority.

    A worker runs it slice by slice: claims it by compare-and-swap (``fence`` + 1, ``lease_owner``), renews
    the lease while it works, and every write it makes names its fence. ``lease_expires_at`` is on the
    database's clock.
    """

    stage = models.PositiveSmallIntegerField(choices=Stage, default=Stage.FIRST)
    priority = models.PositiveSmallIntegerField(choices=PRIORITIES, default=Priority.NORMAL)
    worth = models.FloatField(default=0)  # calls × time × expected gain, in µs
    # False: the contest's first and short slice is still to come, which goes before the rest of any other's.
    opened = models.BooleanField(default=True, db_default=True)
    state = models.CharField(max_length=20, choices=State, default=State.QUEUED)
    reason = models.CharField(max_length=500, blank=True)
    capability = models.CharField(max_length=80)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    fence = models.PositiveBigIntegerField(default=0)
    tries = models.PositiveSmallIntegerField(default=0)  # slices begun since the last one that ended well
    max_tries = models.PositiveSmallIntegerField(default=3)
    error = models.TextField(blank=True)  # of the last try that failed
    doing = models.CharField(max_length=200, blank=True)  # "tvm: building", for the pages
    steps_done = models.PositiveIntegerField(default=0)
    steps_total = models.PositiveIntegerField(default=0)
    round = models.PositiveSmallIntegerField(default=0)  # + 1 when somebody asks to explore it afresh
    # Route names with commas between (tuning.queue.rounds): the only ones of this round, and of the next.
    routes = models.CharField(max_length=200, blank=True)  # empty: every route
    pending_routes = models.CharField(max_length=200, blank=True)  # empty: no further round is asked for
    round_reason = models.CharField(max_length=200, blank=True)  # "kernel softmax-avx2 v2 approved"
    tuning_slices = models.PositiveIntegerField(default=0)
    max_tuning_slices = models.PositiveIntegerField(default=0)  # 0: nothing left worth tuning
    expected_gain = models.FloatField(null=True, blank=True)  # share of the time, of the next tuning slice
    spent_s = models.FloatField(default=0)
    calls = models.FloatField(default=1)  # of the miss, when it was last weighed
    asked_at = models.DateTimeField()  # the miss's arrival
    # Of whose share of the workers it takes: who asked for it first; none: the host's.
    asked_by = models.ForeignKey(Organisation, models.SET_NULL, null=True, blank=True, related_name="+")
    # When its first result was expected, as it was queued; none: nothing could be said.
    expected_first_at = models.DateTimeField(null=True, blank=True)
    first_result_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["operator", "target", "setting", "scope"], name="one_exploration_per_key"
            )
        ]
        indexes = [
            models.Index(fields=["state", "capability", "stage", "priority", "-worth"], name="claim_order"),
            models.Index(fields=["state", "target", "asked_by", "stage"], name="explorations_to_share"),
            models.Index(fields=["state"], condition=~models.Q(pending_routes=""), name="rounds_asked_for"),
            # What people list and count: the latest to move, to be asked for, to end, to give something.
            models.Index(fields=["-updated_at", "-id"], name="explorations_by_moved"),
            models.Index(fields=["state", "-updated_at", "-id"], name="explorations_of_state"),
            models.Index(fields=["-asked_at", "-id"], name="explorations_by_asked"),
            models.Index(fields=["-worth", "-id"], name="explorations_by_worth"),
            models.Index(fields=["-spent_s", "-id"], name="explorations_by_spent"),
            models.Index(fields=["priority", "id"], name="explorations_by_priority"),
            models.Index(fields=["state", "finished_at", "id"], name="explorations_by_end"),
            models.Index(fields=["first_result_at"], name="explorations_by_result"),
        ]

    @property
    def priority_name(self) -> str:
        return priority_name(self.priority)


class TriedRow(models.Model):
    """The columns of whatever was built, checked and timed on a worker, or was not."""

    detail = models.TextField(blank=True)
    median_us = models.FloatField(null=True)
    ratio_to_default = models.FloatField(null=True)
    ratio_low = models.FloatField(null=True)
    ratio_high = models.FloatField(null=True)
    max_error = models.FloatField(null=True)
    tolerance = models.FloatField(null=True)
    build_s = models.FloatField(null=True)
    tier = models.CharField(max_length=4, blank=True)  # of the sandbox
    log_tail = models.TextField(blank=True)
    worker = models.CharField(max_length=100, blank=True)

    class Meta:
        abstract = True


class TrialQuerySet(models.QuerySet["Trial"]):
    def of_the_default(self) -> TrialQuerySet:
        """Those by which the default was timed, the latest first: in a first result others run beside it."""
        timed = {"implementation__measurements__purpose": Purpose.DEFAULT}
        found = self.filter(stage=Stage.FIRST, status="ok", **timed)
        return found.order_by("-implementation__measurements__pk", "-pk")


class Trial(TriedRow):
    """One (route, candidate) built, checked and timed; failures are kept."""

    objects = TrialQuerySet.as_manager()

    exploration = models.ForeignKey(Exploration, models.CASCADE, related_name="trials")
    route = models.CharField(max_length=40)
    method = models.CharField(max_length=20, choices=Method)
    label = models.CharField(max_length=200, blank=True)
    candidate = ExactJSONField(default=dict)
    stage = models.PositiveSmallIntegerField(choices=Stage)
    round = models.PositiveSmallIntegerField(
        default=0
    )  # the exploration's; a resumed one skips what it tried
    fence = models.PositiveBigIntegerField(default=0)  # the claim under which it ran
    status = models.CharField(max_length=20)  # tuning.measure.outcome.Status
    took_s = models.FloatField(default=0)
    device = models.JSONField(
        default=dict
    )  # what a GPU said while it was timed (tuning.measure.device.watch), and what copies took
    implementation = models.ForeignKey(Implementation, models.SET_NULL, null=True, related_name="trials")
    environment = models.ForeignKey(Environment, models.PROTECT, null=True, related_name="+")
    started_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)


class FailureGroup(models.Model):
    """Rollup: trials that failed for one cause, whatever the route and the operator: the same status, and the
    same words once numbers, paths and addresses are left out (``tuning.failures.reasons``). Counted as
    trials are kept, so that no page reads the trials."""

    scope = models.CharField(max_length=30, default=SHARED)
    owner = models.ForeignKey(Organisation, models.CASCADE, null=True, blank=True, related_name="+")
    fingerprint = models.CharField(max_length=64)
    status = models.CharField(max_length=20)  # tuning.measure.outcome.Status
    reason = models.CharField(max_length=200)
    routes = models.JSONField(default=list)
    trials = models.PositiveBigIntegerField(default=0)
    operators = models.PositiveIntegerField(default=0)  # places: an operator on a target counts once
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    # The first trial is not known of a group that was begun before that was kept.
    first = models.ForeignKey(Trial, models.SET_NULL, null=True, related_name="+")
    latest = models.ForeignKey(Trial, models.SET_NULL, null=True, related_name="+")
    again_at = models.DateTimeField(null=True, blank=True)  # when somebody last had it tried again
    again_by = models.CharField(max_length=150, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["scope", "fingerprint"], name="one_group_per_cause"),
        ]
        indexes = [models.Index(fields=["-last_at", "-id"], name="failure_groups_latest")]

    def __str__(self) -> str:
        return self.reason


class FailurePlace(models.Model):
    """An exploration whose trials failed for a group's cause."""

    group = models.ForeignKey(FailureGroup, models.CASCADE, related_name="places")
    exploration = models.ForeignKey(Exploration, models.CASCADE, related_name="+")
    routes = models.JSONField(default=list)
    trials = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["group", "exploration"], name="one_place_per_group"),
        ]
        indexes = [models.Index(fields=["group", "-last_at", "-id"], name="failure_places_latest")]


class Race(models.Model):
    """The race of one slice as it ran: who took part, who was dropped when and with what chance, and what the
    final decided. ``report`` is :class:`tuning.explore.race.report.RaceReport`."""

    exploration = models.ForeignKey(Exploration, models.CASCADE, related_name="races")
    stage = models.PositiveSmallIntegerField(choices=Stage)
    round = models.PositiveSmallIntegerField(default=0)  # the exploration's
    sittings = models.PositiveSmallIntegerField(default=0)  # of the final
    seconds = models.FloatField(default=0)  # heats and final, without the builds
    default_us = models.FloatField(null=True)  # as the final saw it
    winner = models.ForeignKey(Implementation, models.SET_NULL, null=True, related_name="+")
    report = ExactJSONField(default=dict)
    worker = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)


class TuningSlice(models.Model):
    """One slice of search: what was expected of it, and what it brought. Gains are shares of the time."""

    exploration = models.ForeignKey(Exploration, models.CASCADE, related_name="slices")
    route = models.CharField(max_length=40)
    family = models.CharField(max_length=100)  # what is learnt together: the op type and its size class
    expected_gain = models.FloatField()
    gained = models.FloatField()  # 1 - time after ÷ time before, of the fastest known; 0 where nothing won
    before_us = models.FloatField(null=True)
    after_us = models.FloatField(null=True)
    seconds = models.FloatField()  # search, builds and measurements
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["family", "-created_at"], name="slices_of_family")]


class TuningRecord(models.Model):
    """A schedule that a search found, kept so that the operator and its neighbours start from it."""

    operator = models.ForeignKey(Operator, models.CASCADE, related_name="+")
    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    setting = models.ForeignKey(Setting, models.CASCADE, related_name="+")
    route = models.CharField(max_length=40)
    family = models.CharField(max_length=100)  # records can be transferred within one: structure, not sizes
    features = ExactJSONField(default=list)  # log2 sizes: what nearness is measured in
    digest = models.CharField(max_length=64)  # of the record
    record = ExactJSONField()  # the route's own form: a MetaSchedule trace
    time_us = models.FloatField()
    version = models.CharField(max_length=80)  # of the compiler: "apache-tvm 0.27.0.post1"
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["operator", "target", "setting", "route", "digest"], name="one_row_per_tuning_record"
            )
        ]
        indexes = [models.Index(fields=["family", "target", "route"], name="records_of_family")]


class Worker(models.Model):
    """A Celery worker and what it can do; alive while ``last_seen_at`` is recent."""

    name = models.CharField(max_length=100, unique=True)  # Celery's node name and the process id
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    target = models.ForeignKey(Target, models.CASCADE, related_name="workers")
    routes = models.JSONField(default=dict)  # route → {"available": bool, "reason": "", "versions": {}}
    tier = models.CharField(max_length=4, blank=True)
    memory_bytes = models.BigIntegerField(default=0)
    device = models.CharField(max_length=40, blank=True)  # "cuda:0"; empty: it serves the processor
    device_memory_bytes = models.BigIntegerField(default=0)
    device_state = models.JSONField(default=dict)  # its clocks and the like at the last sign of life
    doing = models.CharField(max_length=200, blank=True)  # empty: idle
    warm = models.BooleanField(default=False)
    started_at = models.DateTimeField(auto_now_add=True)
    last_seen_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True, blank=True)


class Revalidation(models.Model):
    """Another environment was declared for a route: what came of measuring its bests again."""

    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    route = models.CharField(max_length=40)
    before = models.ForeignKey(Environment, models.PROTECT, null=True, related_name="+")
    after = models.ForeignKey(Environment, models.PROTECT, related_name="+")
    asked_by = models.CharField(max_length=200, blank=True)  # a person, a key, or why the service did it
    asked_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    superseded = models.BooleanField(default=False)  # another was declared before this one had finished

    class Meta:
        indexes = [
            models.Index(
                fields=["target", "route"], condition=models.Q(finished_at=None), name="open_revalidations"
            )
        ]

    def __str__(self) -> str:
        return f"{self.route}: {self.after}"


class RevalidationVerdict(models.TextChoices):
    """What became of one best under the new environment."""

    WAITING = "waiting", "waiting for its round"
    RESTORED = "restored", "restored from what had been measured"
    BETTER = "better"
    SAME = "same", "no difference beyond noise"
    WORSE = "worse"
    FAILED = "failed", "failed: withdrawn"


class Revalidated(models.Model):
    """One best of one route that must be measured again."""

    revalidation = models.ForeignKey(Revalidation, models.CASCADE, related_name="bests")
    exploration = models.ForeignKey(Exploration, models.CASCADE, related_name="revalidated")
    route = models.CharField(max_length=40)
    implementation = models.ForeignKey(Implementation, models.SET_NULL, null=True, related_name="+")  # before
    ratio_before = models.FloatField()
    ratio_low_before = models.FloatField()
    ratio_high_before = models.FloatField()
    ratio_after = models.FloatField(null=True)
    verdict = models.CharField(
        max_length=20, choices=RevalidationVerdict, default=RevalidationVerdict.WAITING
    )
    detail = models.CharField(max_length=500, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["revalidation", "exploration", "route"], name="one_row_per_best_measured_again"
            )
        ]
        indexes = [
            models.Index(
                fields=["exploration"], condition=models.Q(verdict="waiting"), name="waiting_for_revalidation"
            )
        ]


class Lease(models.Model):
    """A named lease on the database's clock: who does the periodic work."""

    name = models.CharField(max_length=50, unique=True)
    owner = models.CharField(max_length=100)
    expires_at = models.DateTimeField()


class WorkerShare(models.Model):
    """What an organisation has had of the workers, and what it weighs (``tuning.queue.sharing``)."""

    organisation = models.OneToOneField(Organisation, models.CASCADE, related_name="worker_share")
    weight = models.FloatField(default=1.0)
    recent_s = models.FloatField(default=0.0)  # forgotten by halves, as of ``at``
    spent_s = models.FloatField(default=0.0)  # in all
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.organisation}: {self.recent_s:.0f} s"


class Pause(models.Model):
    """A capability (or ``*``) whose queues are paused by hand."""

    capability = models.CharField(max_length=80, unique=True)
    reason = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)


class RouteEffort(models.Model):
    """Rollup: what a route's trials took and came to, over the latest explorations of one place, and of
    all places. Shared ones only. An empty ``route``: all of the method's routes together."""

    place = models.CharField(max_length=50, blank=True)  # "<target>-<setting>"; empty: everywhere
    method = models.CharField(max_length=20, choices=Method)
    route = models.CharField(max_length=40, blank=True)
    found = models.PositiveIntegerField(default=0)  # of a method: operators with a verified implementation
    explorations = models.PositiveIntegerField(default=0)  # in which it tried something
    trials = models.PositiveIntegerField(default=0)
    verified = models.PositiveIntegerField(default=0)  # trials that ended well
    first_result_s = models.FloatField(null=True)  # medians: from the miss to its first verified trial,
    best_s = models.FloatField(null=True)  # to its fastest one,
    effort_s = models.FloatField(null=True)  # seconds of its trials in one exploration,
    build_s = models.FloatField(null=True)  # seconds of one build

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["place", "method", "route"], name="one_effort_per_route_and_place"
            )
        ]


class FailureReason(models.Model):
    """Rollup: how often trials of a route ended in the same words, numbers aside."""

    place = models.CharField(max_length=50, blank=True)  # as in RouteEffort
    method = models.CharField(max_length=20, choices=Method)
    route = models.CharField(max_length=40)
    status = models.CharField(max_length=20)
    reason = models.CharField(max_length=200, blank=True)  # "# times slower than the default"
    count = models.PositiveIntegerField()
    example = models.ForeignKey(Trial, models.SET_NULL, null=True, related_name="+")  # the latest

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["place", "route", "status", "reason"], name="one_row_per_failure_reason"
            )
        ]


class Failing(models.TextChoices):
    """Where an implementation failed for a job."""

    LOAD = "load", "it could not be loaded"
    RUN = "run", "a call failed"
    CRASH = "crash", "it ended its process"


class FailureReport(models.Model):
    """What one organisation's clients say of an implementation that failed for them: theirs to read, and
    nothing but a reason to look again."""

    implementation = models.ForeignKey(Implementation, models.CASCADE, related_name="failure_reports")
    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="+")
    where = models.CharField(max_length=10, choices=Failing)  # of the latest, as all that follows
    error = models.CharField(max_length=80)
    message = models.CharField(max_length=300, blank=True)
    job = models.CharField(max_length=200, blank=True)
    versions = ExactJSONField(default=dict)
    count = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField(auto_now_add=True)
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["implementation", "organisation"], name="one_failure_report_per_organisation"
            )
        ]
        indexes = [models.Index(fields=["organisation", "-last_at"], name="failures_of_organisation")]


class RecheckState(models.TextChoices):
    WAITING = "waiting", "waits for a worker"
    RUNNING = "running", "a worker proves it again"
    NOT_REPRODUCED = "not_reproduced", "could not be reproduced"
    WITHDRAWN = "withdrawn", "failed again: withdrawn"
    UNCHECKED = "unchecked", "could not be checked"


class Recheck(models.Model):
    """A worker of its target proves an implementation again, since clients reported it: only what fails there
    is withdrawn. One row for each, used again when it is reported later. ``due_at``: when one that could not
    be checked is tried again."""

    implementation = models.ForeignKey(Implementation, models.CASCADE, related_name="rechecks")
    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    asked_by = models.ForeignKey(Organisation, models.SET_NULL, null=True, related_name="+")
    asked_at = models.DateTimeField()
    state = models.CharField(max_length=20, choices=RecheckState, default=RecheckState.WAITING)
    detail = models.CharField(max_length=500, blank=True)
    worker = models.CharField(max_length=100, blank=True)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    fence = models.PositiveBigIntegerField(default=0)
    tries = models.PositiveSmallIntegerField(default=0)
    repeats = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField(null=True, blank=True)
    spent_s = models.FloatField(default=0.0)  # of a worker, since it was asked for
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            # By name: bringing operators under today's keys merges rows by their constraints.
            models.UniqueConstraint(fields=["implementation"], name="one_recheck_per_implementation")
        ]
        indexes = [
            models.Index(
                fields=["target", "asked_at"],
                condition=models.Q(state__in=["waiting", "running"]) | models.Q(due_at__isnull=False),
                name="open_rechecks",
            )
        ]
