"""Kernels over REST: submit, read, decide. A person answers for each, so keys must belong to users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Q, QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.authentication import Needs
from catalog.api.describing import query
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.shapes import ModelAnswer, shape
from catalog.charging import PaymentRequired
from catalog.errors import RequestError, Unknown
from catalog.people.keys import has_scope
from tuning.kernels import selectors, services
from tuning.kernels.deciding import decides
from tuning.kernels.dossier import NEEDED, PIECES, Dossier
from tuning.kernels.models import (
    Kernel,
    KernelDecision,
    KernelEvaluation,
    KernelInspection,
    KernelTry,
    KernelVersion,
    VersionState,
)
from tuning.measure.observing.risks import Risk
from tuning.routes.manual.flags import LANGUAGES, OF_DEVICE_CODE, OF_PROCESSORS


class EditSerializer(serializers.Serializer[Any]):
    """A version to submit: C, C++ or CUDA C++, the operators that it serves, and whose it is."""

    source = serializers.CharField(  # type: ignore[assignment]
        trim_whitespace=False,
        help_text="At most 128 KiB; defines opatlas_run, or __global__ functions in cuda.",
    )
    language = serializers.CharField(default="c", max_length=5, help_text=f"One of {', '.join(LANGUAGES)}.")
    pattern = serializers.DictField(help_text="Which operators it serves: docs/kernels.md.")
    flags = serializers.ListField(
        child=serializers.CharField(max_length=60),
        default=list,
        help_text=f"Of {', '.join(OF_PROCESSORS)}; in cuda of {', '.join(OF_DEVICE_CODE)}.",
    )
    launch = serializers.DictField(
        default=None,
        allow_null=True,
        help_text="In cuda: which functions run on which grids, docs/kernels.md.",
    )
    author = serializers.CharField(max_length=200)
    licence = serializers.CharField(max_length=60, help_text="An SPDX expression: MIT, Apache-2.0.")
    description = serializers.CharField(max_length=500, default="", allow_blank=True)
    example = serializers.CharField(
        max_length=80, default="", allow_blank=True, help_text="Key of an operator to evaluate it on."
    )


class SubmissionSerializer(EditSerializer):
    """A kernel to submit, by name; a name that there is makes a new version of it."""

    name = serializers.CharField(max_length=80)


class KernelReasonSerializer(serializers.Serializer[Any]):
    """Why: kept in the history, and read by people."""

    reason = serializers.CharField(max_length=500)


class ApprovalSerializer(KernelReasonSerializer):
    """Why, and what was looked at."""

    looked_at = serializers.DictField(
        child=serializers.CharField(max_length=64),
        default=dict,
        help_text=f"What was looked at, of {', '.join(PIECES)}: piece → its digest in the evidence. At least "
        f"{' and '.join(NEEDED)}; refused with 409 where the evidence changed meanwhile.",
    )


class AgainSerializer(serializers.Serializer[Any]):
    """Why it is worth another try."""

    reason = serializers.CharField(max_length=300, default="", allow_blank=True)


class KernelAnswer(ModelAnswer):
    """A kernel and where its newest version stands."""

    organisation = serializers.CharField(source="organisation.name")
    created_by = serializers.CharField(source="created_by.username")
    version = serializers.IntegerField(source="latest_number")
    state = serializers.CharField(source="latest_state")
    changed_at = serializers.DateTimeField(source="latest_at")

    class Meta:
        model = Kernel
        fields = [
            "id", "name", "description", "organisation", "created_by", "created_at", "version", "state",
            "changed_at",
        ]  # fmt: skip


class VersionAnswer(ModelAnswer):
    """One version, without its source."""

    name = serializers.CharField(source="kernel.name")
    version = serializers.IntegerField(source="number")
    pattern = serializers.DictField()
    flags = serializers.ListField(child=serializers.CharField())
    launch = serializers.DictField(allow_null=True)
    example = serializers.CharField(source="example.key", allow_null=True, default=None)
    submitted_by = serializers.CharField(source="submitted_by.username")
    decided_by = serializers.CharField(source="decided_by.username", allow_null=True, default=None)

    class Meta:
        model = KernelVersion
        fields = [
            "id", "kernel", "name", "version", "language", "source_sha256", "pattern", "flags", "launch",
            "author", "licence", "example", "state", "state_reason", "submitted_by", "submitted_at",
            "decided_by", "decided_at", "approved_at", "withdrawn_at",
        ]  # fmt: skip


class SourceAnswer(VersionAnswer):
    """One version with its source."""

    class Meta(VersionAnswer.Meta):
        fields = [*VersionAnswer.Meta.fields, "source"]


class TimeSerializer(serializers.Serializer[Any]):
    """One line of a comparison: the kernel, the default, the incumbent or another route's best."""

    what = serializers.CharField()
    method = serializers.CharField()
    route = serializers.CharField(allow_blank=True)
    label = serializers.CharField()  # type: ignore[assignment]
    median_us = serializers.FloatField()
    ratio_to_default = serializers.FloatField()
    ratio_low = serializers.FloatField()
    ratio_high = serializers.FloatField()


class EvaluationAnswer(ModelAnswer):
    """A version tried on one operator. Times in µs; ratios are default ÷ candidate."""

    summary = serializers.CharField(source="operator.summary")
    times = TimeSerializer(many=True)

    class Meta:
        model = KernelEvaluation
        fields = [
            "operator", "summary", "target", "setting", "state", "doing", "status", "detail", "log_tail",
            "max_error", "tolerance", "median_us", "default_us", "ratio_to_default", "ratio_low",
            "ratio_high", "incumbent_route", "incumbent_label", "incumbent_us", "incumbent_ratio",
            "incumbent_low", "incumbent_high", "times", "build_s", "tier", "worker", "finished_at",
        ]  # fmt: skip


class TryAnswer(ModelAnswer):
    """One try of an evaluation; none is left out. Times in µs; ratios are default ÷ candidate."""

    operator = serializers.CharField(source="evaluation.operator.key")
    summary = serializers.CharField(source="evaluation.operator.summary")

    class Meta:
        model = KernelTry
        fields = [
            "operator", "summary", "number", "status", "detail", "log_tail", "max_error", "tolerance",
            "median_us", "default_us", "ratio_to_default", "ratio_low", "ratio_high", "incumbent_ratio",
            "build_s", "tier", "worker", "started_at", "ended_at",
        ]  # fmt: skip


class InspectionAnswer(ModelAnswer):
    """What a worker saw beside results and times: an untimed run from outside, and the machine code."""

    operator = serializers.CharField(source="evaluation.operator.key")
    summary = serializers.CharField(source="evaluation.operator.summary")
    observed = serializers.DictField(
        help_text="System calls beyond an empty kernel's (calls), runs, threads, processes, paths, signals, "
        "executable mappings, grown_bytes; or why_not."
    )
    code = serializers.DictField(
        help_text="Of the machine code: imports, notable instructions, constructors, sizes; or why_not."
    )
    provenance = serializers.DictField(help_text="The manifest's: source, flags, builder, who.")
    files = serializers.DictField(help_text="File → SHA-256, as built.")

    class Meta:
        model = KernelInspection
        fields = [
            "operator", "summary", "observed", "code", "assembly", "provenance", "files", "worker",
            "created_at",
        ]  # fmt: skip


RiskAnswer = shape(Risk)
StandingAnswer = shape(selectors.VersionStanding, summary=serializers.CharField(source="operator.summary"))


class EvidenceSerializer(serializers.Serializer[Any]):
    """All that a decision rests on."""

    version = VersionAnswer()
    diff = serializers.CharField(allow_blank=True, help_text="Unified, against the version before.")
    risks = RiskAnswer(many=True, help_text="The gravest first.")
    digests = serializers.DictField(
        child=serializers.CharField(), help_text="Piece → digest: what an approval names as looked at."
    )
    evaluations = EvaluationAnswer(many=True)
    tries = TryAnswer(many=True, help_text="Every try of every evaluation, the first first.")
    inspections = InspectionAnswer(many=True)
    standings = StandingAnswer(many=True)


class DecisionAnswer(ModelAnswer):
    """One step of the history."""

    version = serializers.IntegerField(source="version.number")
    looked_at = serializers.DictField(
        child=serializers.CharField(), help_text="Of an approval: piece of evidence → the digest looked at."
    )

    class Meta:
        model = KernelDecision
        fields = ["version", "step", "who", "reason", "looked_at", "created_at"]


class _Kernels(RestView):
    """What the key sees: its organisation's kernels, and what is approved; who decides sees all."""

    needs = Needs("kernels", or_read_with="approve")

    @property
    def sight(self) -> selectors.Sight:
        user = self.key.user
        decider = user is not None and has_scope(self.key, "approve") and decides(user)
        return selectors.sight_of_key(self.viewer, decider)

    def kernel(self, number: int) -> Kernel:
        return one(selectors.kernels_seen(self.sight), number, f"There is no kernel {number}.")

    def version(self, number: int) -> KernelVersion:
        rows = selectors.versions_seen(self.sight)
        return one(rows, number, f"There is no version {number} of a kernel.")

    def open_version(self, number: int) -> KernelVersion:
        """One whose source is not withheld until it is paid: else 402."""
        version = self.version(number)
        if terms := selectors.source_withheld(version, self.sight, self.viewer.payer):
            raise PaymentRequired(terms)
        return version

    def shown(self, version: KernelVersion) -> KernelVersion:
        """After a decision: as anybody with this key sees it."""
        return selectors.without_withheld(self.sight, self.viewer.payer, [version])[0]

    def submit(self, given: dict[str, Any]) -> KernelVersion:
        submission = services.Submission(**given)
        return services.submit(submission, user=self.author(), organisation=self.key.organisation)

    def author(self) -> Any:
        return self.person("manage.py create_api_key NAME --user USER makes one.")


@listing(
    KernelAnswer,
    name="kernels",
    parameters=[query("state", f"Only where the newest version is {', '.join(VersionState.values)}.")],
)
class KernelsView(_Kernels, Listing[Kernel]):
    """Hand-written kernels, the latest changed first."""

    def get_queryset(self) -> QuerySet[Kernel]:
        rows = selectors.kernels_seen(self.sight)
        if state := self.request.query_params.get("state", ""):
            if state not in VersionState.values:
                raise RequestError(f"state is one of {', '.join(VersionState.values)}.", where="state")
            rows = rows.filter(Q(latest_state=state))
        return rows

    @operation(SourceAnswer, name="submit_kernel", status=201, takes=SubmissionSerializer)
    def post(self, request: Request) -> KernelVersion:
        """Submit a kernel; under a name that there is, a new version of it."""
        return self.submit(self.sent(SubmissionSerializer))


class KernelView(_Kernels):
    @operation(KernelAnswer, name="kernel")
    def get(self, request: Request, number: int) -> Kernel:
        """One kernel."""
        return self.kernel(number)


@listing(VersionAnswer, name="kernel_versions")
class KernelVersionsView(_Kernels, Listing[KernelVersion]):
    """A kernel's versions, the newest first."""

    def get_queryset(self) -> QuerySet[KernelVersion]:
        kernel = self.kernel(self.kwargs["number"])
        return selectors.versions_seen(self.sight).filter(kernel=kernel.pk)

    def paginate_queryset(self, queryset: Any) -> list[Any] | None:
        """A page; of what is withheld until it is paid neither pattern nor flags nor launch template."""
        found = super().paginate_queryset(queryset) or []
        return selectors.without_withheld(self.sight, self.viewer.payer, found)

    @operation(SourceAnswer, name="edit_kernel", status=201, takes=EditSerializer)
    def post(self, request: Request, number: int) -> KernelVersion:
        """Submit another version: the approval of the one before is void at once."""
        kernel = self.kernel(number)
        if kernel.organisation_id != self.key.organisation_id:
            raise Unknown(f"Your organisation has no kernel {number}.")
        return self.submit({**self.sent(EditSerializer), "name": kernel.name})


@listing(DecisionAnswer, name="kernel_history")
class KernelHistoryView(_Kernels, Listing[KernelDecision]):
    """Every step of every version: what, who, when and why."""

    def get_queryset(self) -> QuerySet[KernelDecision]:
        return selectors.history_of(self.kernel(self.kwargs["number"]), self.sight)


class KernelVersionView(_Kernels):
    @operation(SourceAnswer, name="kernel_version", fails=[402])
    def get(self, request: Request, number: int) -> KernelVersion:
        """One version, with its source.

        402 while what is made of it is withheld until it is paid; its organisation's own never is."""
        return self.open_version(number)


class KernelEvidenceView(_Kernels):
    @operation(EvidenceSerializer, name="kernel_evidence", fails=[402])
    def get(self, request: Request, number: int) -> dict[str, Any]:
        """What a decision rests on: risk lines, every try, diff, build logs, errors, times beside every other
        method's best, what an untimed run asked of the system, the machine code; and the pieces' digests.

        402 as for the source."""
        version = self.open_version(number)
        dossier = Dossier(version)
        return {
            "version": version,
            "risks": dossier.risks,
            "digests": dossier.digests,
            "tries": dossier.tries,
            "inspections": dossier.inspections,
            "diff": selectors.source_diff(version, self.sight),
            "evaluations": selectors.evaluations_of(version),
            "standings": selectors.version_standings(version),
        }


class _DecisionView(_Kernels):
    needs = Needs("approve")

    def decide(
        self,
        number: int,
        decide: Callable[..., KernelVersion],
        takes: type[serializers.Serializer[Any]],
    ) -> KernelVersion:
        user = self.author()
        return self.shown(decide(self.version(number), user=user, **self.sent(takes)))


class KernelAgainView(_Kernels):
    needs = Needs("kernels")

    @operation(VersionAnswer, name="evaluate_kernel_again", takes=AgainSerializer)
    def post(self, request: Request, number: int) -> KernelVersion:
        """Evaluate a version again that could not be timed; what was found before stays in its evidence."""
        user = self.author()
        again = services.evaluate_again(self.version(number), user=user, **self.sent(AgainSerializer))
        return self.shown(again)


_DECISIONS: tuple[tuple[str, Callable[..., KernelVersion], str], ...] = (
    ("approve", services.approve, "Let a version into the contest of every operator that it matches."),
    ("reject", services.reject, "Refuse a version that awaits a decision."),
    ("revoke", services.revoke, "Withdraw an approved version at once; the bests fall back."),
)


def _deciding(verb: str, decide: Callable[..., KernelVersion], meaning: str) -> type[_DecisionView]:
    """The view of one decision."""

    def post(self: _DecisionView, request: Request, number: int) -> KernelVersion:
        return self.decide(number, decide, takes)

    post.__doc__ = meaning
    takes = ApprovalSerializer if verb == "approve" else KernelReasonSerializer
    described = operation(VersionAnswer, name=f"{verb}_kernel", takes=takes)(post)
    return type(f"{verb.title()}View", (_DecisionView,), {"post": described})


urlpatterns = [
    path("kernels/", KernelsView.as_view(), name="api-kernels"),
    path("kernels/<row_id:number>", KernelView.as_view()),
    path("kernels/<row_id:number>/versions", KernelVersionsView.as_view(), name="api-kernel-versions"),
    path("kernels/<row_id:number>/history", KernelHistoryView.as_view()),
    path("kernels/versions/<row_id:number>", KernelVersionView.as_view()),
    path("kernels/versions/<row_id:number>/evidence", KernelEvidenceView.as_view()),
    path("kernels/versions/<row_id:number>/evaluate", KernelAgainView.as_view(), name="api-kernel-evaluate"),
    *(
        path(
            f"kernels/versions/<row_id:number>/{one[0]}",
            _deciding(*one).as_view(),
            name=f"api-kernel-{one[0]}",
        )
        for one in _DECISIONS
    ),
]
