"""Shapes of requests and answers. The lookup's are for the schema: ``lookup_json`` reads its JSON."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from catalog import models
from catalog.conf import MAX_OPERATORS, MAX_WAIT_S

OPERATOR_KEY = r"^o1:[0-9a-f]{64}$"
STATUSES = ["hit", "miss", "need_graph"]


@extend_schema_field(OpenApiTypes.OBJECT)
class Document(serializers.JSONField):
    """A JSON object."""


class ErrorSerializer(serializers.Serializer[Any]):
    error = serializers.CharField(help_text="One sentence: what is wrong, and what would be right.")
    where = serializers.CharField(required=False, help_text="Where in the request: operators[3].graph.")
    request_id = serializers.CharField(required=False, help_text="Names this request in the service's log.")


@extend_schema_field({"type": "number", "exclusiveMinimum": True, "minimum": 0, "maximum": 1e15})
class CallsField(serializers.FloatField):
    """More than none."""


class AskedSerializer(serializers.Serializer[Any]):
    key = serializers.RegexField(OPERATOR_KEY, required=False)
    graph = Document(
        required=False,
        help_text='Canonical JSON; {"op": "Relu", "inputs": [{"shape": [8], "dtype": "float32"}]}; '
        'or {"onnx": "<base64 of a ModelProto>"}.',
    )
    calls = CallsField(required=False, help_text="How often one run calls it; 1 unless given.")


class AcceptsSerializer(serializers.Serializer[Any]):
    kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=["c-abi", "package", "recipe"]), required=False, min_length=1
    )
    versions = serializers.DictField(
        child=serializers.CharField(), required=False, help_text='What is installed: {"torch": "2.13.0"}.'
    )


@extend_schema_field(
    {"oneOf": [{"type": "string", "pattern": "^(t1:[0-9a-f]{64}|here)$"}, {"type": "object"}]}
)
class TargetField(serializers.JSONField):
    """A target's key, its JSON, or ``here``: the target of the live worker that was seen last."""


@extend_schema_field({"oneOf": [{"type": "string", "pattern": "^s1:[0-9a-f]{64}$"}, {"type": "object"}]})
class SettingField(serializers.JSONField):
    """A setting's key or its JSON."""


class LookupRequestSerializer(serializers.Serializer[Any]):
    target = TargetField()
    setting = SettingField(
        required=False, help_text="Left out: all cores of the target, warm cache, float32."
    )
    job = serializers.CharField(required=False, max_length=200, help_text="The run that asks, by its name.")
    accepts = AcceptsSerializer(required=False, help_text="What the caller can load. Left out: everything.")
    operators = serializers.ListField(child=AskedSerializer(), min_length=1, max_length=MAX_OPERATORS)
    related = serializers.ListField(
        child=AskedSerializer(),
        required=False,
        max_length=MAX_OPERATORS,
        help_text="Operators that may come next: explored at lower priority, not answered.",
    )
    wait_s = serializers.FloatField(
        required=False,
        min_value=0,
        max_value=MAX_WAIT_S,
        help_text="Wait at most this long for misses to be explored. A busy service may answer at once.",
    )


class BestSerializer(serializers.Serializer[Any]):
    """The fastest acceptable implementation. Times in microseconds; ratios are default ÷ this."""

    implementation = serializers.IntegerField()
    route = serializers.CharField()
    method = serializers.ChoiceField(choices=models.Method.choices)
    label = serializers.CharField()  # type: ignore[assignment]
    kind = serializers.CharField(help_text="Of the artifact: c-abi, package or recipe.")
    artifact = serializers.CharField()
    url = serializers.CharField()
    median_us = serializers.FloatField()
    spread_us = serializers.FloatField()
    default_us = serializers.FloatField()
    ratio_to_default = serializers.FloatField()
    ratio_low = serializers.FloatField()
    ratio_high = serializers.FloatField()
    measured_at = serializers.DateTimeField()


class PriceSerializer(serializers.Serializer[Any]):
    """What a hit costs. Amounts in millionths of the currency."""

    amount_micros = serializers.IntegerField()
    currency = serializers.CharField(help_text="ISO 4217: EUR.")
    rule = serializers.IntegerField(help_text="The price rule's number.")
    pay_url = serializers.CharField(help_text="A path of this service: where to read the price and pay.")
    due_micros = serializers.IntegerField(help_text="What the organisation owes in all; 0 within its credit.")
    sentence = serializers.CharField()


class WithheldSerializer(serializers.Serializer[Any]):
    """What is to be had for its price: how fast, and by which method."""

    implementation = serializers.IntegerField()
    route = serializers.CharField()
    method = serializers.ChoiceField(choices=models.Method.choices)
    median_us = serializers.FloatField()
    spread_us = serializers.FloatField()
    default_us = serializers.FloatField()
    ratio_to_default = serializers.FloatField()
    ratio_low = serializers.FloatField()
    ratio_high = serializers.FloatField()
    measured_at = serializers.DateTimeField()


class PaymentRequiredSerializer(ErrorSerializer):
    price = PriceSerializer()


class ResultSerializer(serializers.Serializer[Any]):
    key = serializers.RegexField(OPERATOR_KEY)
    status = serializers.ChoiceField(choices=STATUSES)
    best = BestSerializer(required=False)
    state = serializers.CharField(
        required=False,
        help_text="Of a miss: waiting, promoted, postponed, discarded, explored, unsupported or failed; and "
        "'refused': the key's quota of queued misses is used up, nothing was recorded. "
        "'explored': implementations exist, but none that the request accepts. 'payment_required': the best "
        "is withheld until credit or a plan covers it.",
    )
    reason = serializers.CharField(required=False, allow_blank=True)
    price = PriceSerializer(
        required=False, help_text="Of a hit that was charged, or of a best that is withheld."
    )
    withheld = WithheldSerializer(required=False, help_text="Comes with the state payment_required.")


class RevocationsSerializer(serializers.Serializer[Any]):
    """What a client that keeps entries must know."""

    entry_life_s = serializers.FloatField(help_text="How long an entry may be used without asking again.")
    revoked = serializers.ListField(
        child=serializers.CharField(),
        help_text="Artifacts (SHA-256) revoked within that time and a minute: drop them, do not run them.",
    )
    revoked_all = serializers.BooleanField(
        required=False, help_text="Comes, as true, where they are too many to list: drop every entry."
    )


class LookupAnswerSerializer(RevocationsSerializer):
    target = serializers.CharField()
    setting = serializers.CharField()
    served = serializers.BooleanField(help_text="Whether a live worker explores for this target.")
    note = serializers.CharField(required=False, help_text="Comes with served: false.")
    results = ResultSerializer(many=True, help_text="One for each operator, in the order asked.")


class BestAnswerSerializer(RevocationsSerializer, ResultSerializer):
    target = serializers.CharField()
    setting = serializers.CharField()
    served = serializers.BooleanField()
    note = serializers.CharField(required=False)


class OperatorSerializer(serializers.ModelSerializer[models.Operator]):
    class Meta:
        model = models.Operator
        fields = ["key", "op_type", "summary", "dtype", "flops", "bytes_moved", "created_at"]


class FiguresSerializer(serializers.Serializer[Any]):
    """How an operator fares: jobs that used it, and its hit rate (null while nobody asked)."""

    jobs = serializers.IntegerField()
    hits = serializers.IntegerField()
    misses = serializers.IntegerField()
    hit_rate = serializers.FloatField(allow_null=True)


class OperatorDetailSerializer(OperatorSerializer):
    graph = Document()
    figures = FiguresSerializer()

    class Meta(OperatorSerializer.Meta):
        fields = [*OperatorSerializer.Meta.fields, "graph", "figures"]


class MeasurementSerializer(serializers.ModelSerializer[models.Measurement]):
    samples_us = serializers.ListField(child=serializers.FloatField())

    class Meta:
        model = models.Measurement
        exclude = ["implementation"]


class ImplementationSerializer(serializers.ModelSerializer[models.Implementation]):
    operator = serializers.SlugRelatedField(slug_field="key", read_only=True)  # type: ignore[var-annotated]
    target = serializers.SlugRelatedField(slug_field="key", read_only=True)  # type: ignore[var-annotated]
    setting = serializers.SlugRelatedField(slug_field="key", read_only=True)  # type: ignore[var-annotated]
    artifact = serializers.SlugRelatedField(slug_field="sha256", read_only=True)  # type: ignore[var-annotated]
    kind = serializers.CharField(source="artifact.kind", read_only=True)
    candidate = Document()
    versions = Document(source="environment.versions", read_only=True)
    price = PriceSerializer(
        required=False,
        help_text="Comes where it is withheld until it is paid: the candidate and the artifact's address are "
        "left empty.",
    )

    class Meta:
        model = models.Implementation
        fields = [
            "id",
            "operator",
            "target",
            "setting",
            "scope",
            "route",
            "method",
            "label",
            "kind",
            "artifact",
            "candidate",
            "versions",
            "build_s",
            "created_at",
            "revoked_at",
            "revoked_reason",
            "price",
        ]


class ImplementationDetailSerializer(ImplementationSerializer):
    """With its schedule and code, and all its evidence, the newest first."""

    measurements = MeasurementSerializer(many=True)

    class Meta(ImplementationSerializer.Meta):
        fields = [*ImplementationSerializer.Meta.fields, "schedule", "source", "measurements"]


class RevokeSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=300, help_text="Why, in a sentence that people will read.")


class SignerSerializer(serializers.ModelSerializer[models.Signer]):
    """A public key. ``public_key`` is raw Ed25519, 32 bytes in hexadecimal; ``sha256`` is its digest."""

    class Meta:
        model = models.Signer
        fields = ["sha256", "public_key", "created_at", "retired_at"]


class ArtifactFileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    sha256 = serializers.CharField()
    url = serializers.CharField()


class ArtifactSerializer(serializers.Serializer[Any]):
    """A manifest: its canonical JSON has the SHA-256 ``sha256`` and is what ``signature`` signs (Ed25519)."""

    sha256 = serializers.CharField()
    kind = serializers.CharField()
    manifest = Document()
    signature = serializers.CharField(allow_blank=True)
    signer = serializers.CharField(allow_blank=True)
    size_bytes = serializers.IntegerField()
    files = ArtifactFileSerializer(many=True)


class TargetSerializer(serializers.ModelSerializer[models.Target]):
    description = Document()
    served = serializers.BooleanField(help_text="Whether a live worker explores for it now.")

    class Meta:
        model = models.Target
        fields = ["key", "kind", "arch", "capability", "description", "served", "created_at"]


class SettingSerializer(serializers.ModelSerializer[models.Setting]):
    description = Document()

    class Meta:
        model = models.Setting
        fields = ["key", "threads", "cache", "description"]
