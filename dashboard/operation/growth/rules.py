"""What keeps tables and folders in bounds: a sentence each, with the numbers that the rules go by."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from django.contrib.sessions.models import Session
from django.db.models import Model

from catalog import models
from catalog.conf import conf as catalog_conf
from catalog.lookup import repeating
from catalog.people import archiving
from catalog.usage import draining, succession
from dashboard.billing import agreements
from dashboard.billing.models import UseAgreement
from dashboard.conf import conf
from dashboard.notifications import delivering
from dashboard.notifications.models import (
    Alert,
    AlertDeed,
    Notification,
    NotificationDelivery,
    NotificationMessage,
)
from dashboard.operation import retention
from dashboard.operation.growth import sampling
from dashboard.operation.growth.forecast import several
from dashboard.operation.models import SizeSample
from dashboard.webhooks import retention as webhooks_retention
from dashboard.webhooks.models import Attempt, Delivery, Message
from tuning.conf import conf as tuning_conf
from tuning.measure.code_listing import MOST_LINES
from tuning.models import FailureGroup, FailurePlace, FailureReport, Trial
from tuning.rechecks import reporting
from tuning.uploads import intake
from tuning.uploads.models import Upload

NONE = "Kept for good."


def rules() -> Mapping[str, str]:
    """Table or folder → what is kept of it; what is not named is kept for good."""
    artifacts = f"Gone {_days(retention.GRACE)} after no implementation has them."
    webhooks = f"Kept for {_days(webhooks_retention.KEEP)}."
    months = f"{catalog_conf().usage_months} whole months"
    told = f"Kept for {_days(delivering.KEPT)}, and until they were read."
    causes = (
        f"Kept for {several(tuning_conf().failures_days, 'day')} after a cause was seen last, and at most "
        f"{tuning_conf().failures_most:,} causes of an organisation; one that is an alert stays."
    )
    of_tables: dict[type[Model], str] = {
        models.Artifact: artifacts,
        models.AuditEntry: "Archived by hand: manage.py archive_audit, what is older than "
        f"{_days(archiving.LEAST_AGE)}.",
        models.MachineCode: f"At most {MOST_LINES:,} lines of an implementation; gone with it.",
        models.JournalSegment: f"Kept for {_days(draining.KEPT)}.",
        models.KeptAnswer: f"Kept for {_days(repeating.KEPT)}.",
        models.LookupTally: f"By the hour for {months}, then by the day.",
        models.Usage: f"Kept for {months}, then their sums are.",
        models.SignIn: "Gone with its session.",
        models.Succession: f"Kept for {_days(succession.KEPT)} after it came up last, and at most "
        f"{succession.MOST_ROWS:,} of an organisation.",
        Session: "Gone once it has run out.",
        Trial: f"Logs are kept for {conf().trial_logs_days} days, trials for good.",
        **dict.fromkeys((FailureGroup, FailurePlace), causes),
        FailureReport: f"At most {reporting.MOST_KEPT:,} of an organisation.",
        Upload: f"At most {intake.MOST_KEPT:,} of an organisation that have ended.",
        UseAgreement: f"Kept for {_days(agreements.KEPT)} after its end.",
        **dict.fromkeys((Message, Delivery, Attempt), webhooks),
        **dict.fromkeys((Notification, NotificationMessage, NotificationDelivery), told),
        **dict.fromkeys((Alert, AlertDeed), f"Kept for {_days(delivering.KEPT)} after its cause was gone."),
        SizeSample: f"Kept for {_days(sampling.KEPT)}.",
    }
    return {model._meta.db_table: said for model, said in of_tables.items()} | {
        sampling.DATABASE: "Each of its tables by its own rule; the file gets no smaller.",
        sampling.STORE: artifacts,
        sampling.JOURNAL: "Gone once it is drained.",
        sampling.STATE: NONE,
    }


def _days(time: timedelta) -> str:
    return several(time.days, "day")
