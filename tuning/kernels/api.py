"""Kernels over REST: submit, read, decide. A person answers for each, so keys must belong to users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import PermissionDenied
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import HasScope, key_of
from catalog.api.describing import errors, query
from catalog.errors import RequestError, Unknown
from catalog.models import ApiKey
from catalog.people.keys import has_scope
from catalog.viewing import viewer_of_key
from tuning.kernels import selectors, services
from tuning.kernels.api import serializers
from tuning.kernels.deciding import decides
from tuning.kernels.models import Kernel, KernelDecision, KernelVersion, VersionState

SCOPES = ("kernels", "approve")


class MaySee(HasScope):
    """Reading takes either scope; writing the one that the view requires."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if request.auth is None or request.method not in ("GET", "HEAD", "OPTIONS"):
            return super().has_permission(request, view)
        key = key_of(request)
        if not any(has_scope(key, scope) for scope in SCOPES):
            has = ", ".join(key.scopes) or "none"
            raise PermissionDenied(
                f"This needs a key with the scope 'kernels' or 'approve'; yours has: {has}."
            )
        return True


def person_of(key: ApiKey) -> User:
    """Whose key this is; 403 for a key that is nobody's."""
    if key.user is None:
        raise PermissionDenied(
            "This needs a key that belongs to a user: manage.py create_api_key NAME --user USER makes one."
        )
    if not key.user.is_active:
        raise PermissionDenied("The user whose key this is was switched off.")
    return key.user


class Kernels(ListAPIView[Kernel]):
    """An organisation's kernels."""

    permission_classes = [MaySee]
    required_scope = "kernels"
    serializer_class = serializers.KernelSerializer
    queryset = Kernel.objects.none()

    @extend_schema(
        operation_id="kernels",
        tags=["kernels"],
        summary="Hand-written kernels, the latest changed first",
        parameters=[query("state", f"Only where the newest version is {', '.join(VersionState.values)}.")],
        responses={200: serializers.KernelSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[Kernel]:
        rows = _kernels(self.request)
        if state := self.request.query_params.get("state", ""):
            if state not in VersionState.values:
                raise RequestError(f"state is one of {', '.join(VersionState.values)}.", where="state")
            rows = rows.filter(Q(latest_state=state))
        return rows

    @extend_schema(
        operation_id="submit_kernel",
        tags=["kernels"],
        summary="Submit a kernel; under a name that there is, a new version of it",
        request=serializers.SubmissionSerializer,
        responses={201: serializers.SourceSerializer, **errors(400, 404, 409, 413)},
    )
    def post(self, request: Request) -> Response:
        return _submit(request, _checked(serializers.SubmissionSerializer, request))


class KernelDetail(APIView):
    permission_classes = [MaySee]

    @extend_schema(
        operation_id="kernel",
        tags=["kernels"],
        summary="One kernel",
        responses={200: serializers.KernelSerializer, **errors(404)},
    )
    def get(self, request: Request, number: int) -> Response:
        return Response(serializers.KernelSerializer(_kernel(request, number)).data)


class Versions(ListAPIView[KernelVersion]):
    permission_classes = [MaySee]
    required_scope = "kernels"
    serializer_class = serializers.VersionSerializer
    queryset = KernelVersion.objects.none()

    @extend_schema(
        operation_id="kernel_versions",
        tags=["kernels"],
        summary="A kernel's versions, the newest first",
        responses={200: serializers.VersionSerializer(many=True), **errors(404)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[KernelVersion]:
        kernel = _kernel(self.request, self.kwargs["number"])
        return _versions(self.request).filter(kernel=kernel.pk)

    @extend_schema(
        operation_id="edit_kernel",
        tags=["kernels"],
        summary="Submit another version: the approval of the one before is void at once",
        request=serializers.EditSerializer,
        responses={201: serializers.SourceSerializer, **errors(400, 404, 409, 413)},
    )
    def post(self, request: Request, number: int) -> Response:
        kernel = _kernel(request, number)
        if kernel.organisation_id != key_of(request).organisation_id:
            raise Unknown(f"Your organisation has no kernel {number}.")
        return _submit(request, {**_checked(serializers.EditSerializer, request), "name": kernel.name})


class History(ListAPIView[KernelDecision]):
    permission_classes = [MaySee]
    serializer_class = serializers.DecisionSerializer
    queryset = KernelDecision.objects.none()

    @extend_schema(
        operation_id="kernel_history",
        tags=["kernels"],
        summary="Every step of every version: what, who, when and why",
        responses={200: serializers.DecisionSerializer(many=True), **errors(404)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[KernelDecision]:
        return selectors.history_of(_kernel(self.request, self.kwargs["number"]), _sight(self.request))


class VersionDetail(APIView):
    permission_classes = [MaySee]

    @extend_schema(
        operation_id="kernel_version",
        tags=["kernels"],
        summary="One version, with its source",
        responses={200: serializers.SourceSerializer, **errors(404)},
    )
    def get(self, request: Request, number: int) -> Response:
        return Response(serializers.SourceSerializer(_version(request, number)).data)


class KernelEvidenceView(APIView):
    permission_classes = [MaySee]

    @extend_schema(
        operation_id="kernel_evidence",
        tags=["kernels"],
        summary="What a decision rests on: diff, build logs, errors, times beside every other method's best",
        responses={200: serializers.EvidenceSerializer, **errors(404)},
    )
    def get(self, request: Request, number: int) -> Response:
        version = _version(request, number)
        evidence = {
            "version": version,
            "diff": selectors.source_diff(version, _sight(request)),
            "evaluations": selectors.evaluations_of(version),
            "standings": selectors.version_standings(version),
        }
        return Response(serializers.EvidenceSerializer(evidence).data)


class _Decision(APIView):
    permission_classes = [MaySee]
    required_scope = "approve"

    def _decide(self, request: Request, number: int, decide: Callable[..., KernelVersion]) -> Response:
        user = person_of(key_of(request))
        reason = _checked(serializers.KernelReasonSerializer, request)["reason"]
        version = decide(_version(request, number), user=user, reason=reason)
        return Response(serializers.VersionSerializer(version).data)


def _described(name: str, summary: str) -> Any:
    return extend_schema(
        operation_id=name,
        tags=["kernels"],
        summary=summary,
        request=serializers.KernelReasonSerializer,
        responses={200: serializers.VersionSerializer, **errors(400, 404, 409)},
    )


class Approve(_Decision):
    @_described("approve_kernel", "Let a version into the contest of every operator that it matches")
    def post(self, request: Request, number: int) -> Response:
        return self._decide(request, number, services.approve)


class Reject(_Decision):
    @_described("reject_kernel", "Refuse a version that awaits a decision")
    def post(self, request: Request, number: int) -> Response:
        return self._decide(request, number, services.reject)


class Revoke(_Decision):
    @_described("revoke_kernel", "Withdraw an approved version at once; the bests fall back")
    def post(self, request: Request, number: int) -> Response:
        return self._decide(request, number, services.revoke)


def _submit(request: Request, given: dict[str, Any]) -> Response:
    key = key_of(request)
    version = services.submit(
        services.Submission(**given), user=person_of(key), organisation=key.organisation
    )
    return Response(serializers.SourceSerializer(version).data, status=201)


def _kernels(request: Request) -> QuerySet[Kernel]:
    """The key's organisation's, and what is approved; every organisation's for somebody who decides."""
    return selectors.kernels_seen(_sight(request))


def _versions(request: Request) -> QuerySet[KernelVersion]:
    return selectors.versions_seen(_sight(request))


def _sight(request: Request) -> selectors.Sight:
    key = key_of(request)
    decider = key.user is not None and has_scope(key, "approve") and decides(key.user)
    return selectors.sight_of_key(viewer_of_key(key), decider)


def _kernel(request: Request, number: int) -> Kernel:
    row = _kernels(request).filter(pk=number).first()
    if row is None:
        raise Unknown(f"There is no kernel {number}.")
    return row


def _version(request: Request, number: int) -> KernelVersion:
    row = _versions(request).filter(pk=number).first()
    if row is None:
        raise Unknown(f"There is no version {number} of a kernel.")
    return row


def _checked(shape: type[Any], request: Request) -> dict[str, Any]:
    serializer = shape(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)
