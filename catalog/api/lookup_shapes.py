"""A lookup as the schema says it: ``lookup_json`` reads what comes, ``lookup_answer`` writes what leaves."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from catalog.api.describing import PriceSerializer
from catalog.api.lookup_json import MAX_LIMIT_MICROS
from catalog.api.shapes import Document
from catalog.conf import MAX_OPERATORS, MAX_WAIT_S
from catalog.lookup.lookups import INCLUDABLE
from catalog.models import AnswerStage, Method
from opatlas.load.manifest import KINDS

OPERATOR_KEY = r"^o1:[0-9a-f]{64}$"
STATUSES = ["hit", "miss", "need_graph", "need_lookup"]


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
    kinds = serializers.ListField(child=serializers.ChoiceField(choices=KINDS), required=False, min_length=1)
    versions = serializers.DictField(
        child=serializers.CharField(), required=False, help_text='What is installed: {"torch": "2.13.0"}.'
    )


@extend_schema_field(
    {"oneOf": [{"type": "string", "pattern": "^(t1:[0-9a-f]{64}|here)$"}, {"type": "object"}]}
)
class TargetField(serializers.JSONField):
    """A target's key, its JSON, or ``here``: the target of the worker that was seen last."""


@extend_schema_field({"oneOf": [{"type": "string", "pattern": "^s1:[0-9a-f]{64}$"}, {"type": "object"}]})
class SettingField(serializers.JSONField):
    """A setting's key or its JSON."""


class SpendLimitSerializer(serializers.Serializer[Any]):
    amount_micros = serializers.IntegerField(min_value=0, max_value=MAX_LIMIT_MICROS)
    currency = serializers.RegexField(r"^[A-Z]{3}$", help_text="ISO 4217: EUR; the account's.")


class LookupRequestSerializer(serializers.Serializer[Any]):
    target = TargetField()
    setting = SettingField(required=False, help_text="Left out: all cores of a CPU, warm cache, float32.")
    job = serializers.CharField(required=False, max_length=200, help_text="The run that asks, by its name.")
    accepts = AcceptsSerializer(required=False, help_text="What the caller can load. Left out: everything.")
    operators = serializers.ListField(
        child=AskedSerializer(),
        max_length=MAX_OPERATORS,
        help_text="At least one, unless `related` ones are only looked at (`include`).",
    )
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
        help_text="Wait at most this long for exploring to come as far as wait_for. A busy service may "
        "answer at once.",
    )
    wait_for = serializers.ChoiceField(
        required=False,
        choices=AnswerStage.choices,
        help_text="With wait_s: until which stage (see the answer's `stage`); `first` unless given. What is "
        "final or has failed is not waited for.",
    )
    include = serializers.ListField(
        child=serializers.ChoiceField(choices=INCLUDABLE),
        required=False,
        help_text="`manifest`: the signed manifests of all that hit. `related`: what is known of the related "
        "operators, uncounted; what costs something is `need_lookup` there. `neighbours`: for a CPU target "
        "that no live worker serves, hits of the nearest target that differs in cores and cache sizes alone, "
        "marked `from_neighbour`; free ones only. `neighbour_defaults`: with it, where the setting is the "
        "target's default (all its cores), also what a neighbour has under its own. `next`: hits "
        "that your organisation's jobs asked for after these operators, uncounted, free ones only. "
        "`evidence`: of each hit its error, sandbox tier, environment and signer.",
    )
    known = serializers.ListField(
        child=serializers.RegexField(r"^[0-9a-f]{64}$"),
        required=False,
        max_length=2 * MAX_OPERATORS,
        help_text="Artifacts whose manifests the caller has: they are not sent again.",
    )
    spend_limit = SpendLimitSerializer(
        required=False,
        help_text="What this job (which must be named) may spend in all. What is charged then comes with an "
        "agreement: its further uses by the caller's caches are charged when they are reported (`POST "
        "/usage`). Beyond the limit items are empty, with the state payment_required.",
    )
    free_only = serializers.BooleanField(
        required=False,
        help_text="Charge nothing: where one of the operators costs something the lookup is a 409 that names "
        "it (`where`), and no hit is counted. For who asks on behalf of several.",
    )
    revoked_since = serializers.RegexField(
        r"^[0-9]{1,16}(-[0-9]{1,18})?$",
        required=False,
        help_text="The last answer's `revoked_until`, or 0: `revoked` then has all that was revoked since.",
    )


class WithheldSerializer(serializers.Serializer[Any]):
    """What is to be had for its price: how fast, and by which method."""

    implementation = serializers.IntegerField()
    route = serializers.CharField()
    method = serializers.ChoiceField(choices=Method.choices)
    is_default = serializers.BooleanField(
        help_text="It is the default itself, what the caller has without the service: nothing is gained."
    )
    median_us = serializers.FloatField()
    spread_us = serializers.FloatField()
    default_us = serializers.FloatField()
    ratio_to_default = serializers.FloatField()
    ratio_low = serializers.FloatField()
    ratio_high = serializers.FloatField()
    measured_at = serializers.DateTimeField()


class HitEvidenceSerializer(serializers.Serializer[Any]):
    """Why a hit is trusted."""

    max_error = serializers.FloatField(
        allow_null=True, help_text="Of the worst element, as a share of what is allowed there."
    )
    tolerance = serializers.FloatField(allow_null=True, help_text="The share that passes.")
    tier = serializers.CharField(
        allow_blank=True, help_text="Of the sandbox that it was proven in: T2, T1, T0."
    )
    environment = serializers.DictField(child=serializers.CharField(), help_text="Versions that produced it.")
    signer = serializers.CharField(
        allow_blank=True, help_text="SHA-256 of the public key that vouches for the artifact."
    )


class BestSerializer(WithheldSerializer):
    """The fastest acceptable implementation. Times in microseconds; ratios are default ÷ this."""

    label = serializers.CharField()  # type: ignore[assignment]
    equal = serializers.BooleanField(
        help_text="It is not the fastest known, but the race that decided did not tell it apart from that."
    )
    kind = serializers.CharField(help_text=f"Of the artifact: one of {', '.join(KINDS)}.")
    artifact = serializers.CharField()
    url = serializers.CharField()
    evidence = HitEvidenceSerializer(required=False, help_text="With include `evidence`.")


class SizesSerializer(serializers.Serializer[Any]):
    asked = serializers.IntegerField(allow_null=True)
    neighbour = serializers.IntegerField(allow_null=True)


class FromNeighbourSerializer(serializers.Serializer[Any]):
    """Another target's best: every time in it was measured there, none here. It is asked for to be explored
    here all the same, and then this candidate is the first that is tried."""

    target = serializers.CharField(help_text="The neighbour's t1: key.")
    differs = serializers.DictField(
        child=SizesSerializer(),
        help_text="By field: `cores`, `cache_bytes.l2` (null where it has none), `setting.threads`: it was "
        "measured with so many, and is not to be run with more than were asked for.",
    )


class ResultSerializer(serializers.Serializer[Any]):
    key = serializers.RegexField(OPERATOR_KEY)
    status = serializers.ChoiceField(choices=STATUSES)
    stage = serializers.ChoiceField(
        required=False,
        choices=AnswerStage.choices,
        help_text="Of a hit or a withheld best: the furthest stage of exploring that has ended for this "
        "operator, target and setting. `first`: there is a first result, the contest waits or runs. "
        "`contest`: the contest has ended, tuning may follow. `tuned`: a slice of tuning has ended as well.",
    )
    final = serializers.BooleanField(
        required=False,
        help_text="Nothing more is planned for it just now. Until then a faster one may be found any moment.",
    )
    expires_s = serializers.FloatField(
        required=False,
        help_text="How long this answer may be used without asking again: seconds while it is not final.",
    )
    best = BestSerializer(required=False)
    from_neighbour = FromNeighbourSerializer(
        required=False, help_text="With include `neighbours`: it was measured on another target."
    )
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

    entry_life_s = serializers.FloatField(
        help_text="How long a final entry may be used without asking again; each entry's own is expires_s."
    )
    revoked = serializers.ListField(
        child=serializers.CharField(),
        help_text="Artifacts (SHA-256) that were revoked, within that time and a minute or since "
        "`revoked_since`: drop them, do not run them.",
    )
    revoked_until = serializers.CharField(
        required=False,
        help_text="With `revoked_since`: what to send as that the next time.",
    )
    revoked_all = serializers.BooleanField(
        required=False,
        help_text="Comes, as true, where they are too many to list: drop every entry. With `revoked_since` "
        "the oldest are listed, and the next answer goes on from there.",
    )


class SignedManifestSerializer(serializers.Serializer[Any]):
    """A manifest, and the signature (Ed25519, hexadecimal) over its canonical bytes."""

    manifest = Document()
    signature = serializers.CharField(allow_blank=True)
    signer = serializers.CharField(allow_blank=True, help_text="The public key's SHA-256.")


class SignerKeySerializer(serializers.Serializer[Any]):
    public_key = serializers.CharField(help_text="Raw Ed25519, hexadecimal.")
    retired_at = serializers.DateTimeField(
        allow_null=True, help_text="Since then its signatures are refused."
    )


class LookupAnswerSerializer(RevocationsSerializer):
    target = serializers.CharField()
    setting = serializers.CharField()
    served = serializers.BooleanField(help_text="Whether a live worker explores for this target.")
    note = serializers.CharField(required=False, help_text="Comes with served: false.")
    results = ResultSerializer(many=True, help_text="One for each operator, in the order asked.")
    related = ResultSerializer(
        many=True,
        required=False,
        help_text="With include: one for each related operator, in the order given.",
    )
    next = ResultSerializer(
        many=True,
        required=False,
        help_text="With include: hits that jobs asked next, the likeliest first; none that was named.",
    )
    manifests = serializers.DictField(
        child=SignedManifestSerializer(),
        required=False,
        help_text="With include: by artifact, but those known.",
    )
    unchanged = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="With `known`: those artifacts among them that hit; their manifests are not sent again.",
    )
    signers = serializers.DictField(
        child=SignerKeySerializer(),
        required=False,
        help_text="With include: who signed the manifests of all that hit, by the public key's SHA-256.",
    )


class BestAnswerSerializer(RevocationsSerializer, ResultSerializer):
    target = serializers.CharField()
    setting = serializers.CharField()
    served = serializers.BooleanField()
    note = serializers.CharField(required=False)
