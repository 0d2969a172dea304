"""What hits saved, per tally, from the usage rows; every hour is due to be rolled up. On PostgreSQL, an index
that finds words inside of operators' summaries."""

from itertools import islice

from django.db import DatabaseError, migrations, transaction
from django.db.models import F, Sum
from django.db.models.functions import TruncHour

_BATCH = 500


def fill(apps, schema_editor):
    tally, usage, stale = (apps.get_model("catalog", name) for name in ("LookupTally", "Usage", "StaleHour"))
    sums = (
        usage.objects.annotate(hour=TruncHour("served_at"))
        .values_list("hour", "operator_id", "organisation_id")
        .annotate(saved=Sum(F("calls") * (F("default_us") - F("median_us"))))
        .order_by("hour", "operator_id", "organisation_id")
    )
    rows = sums.iterator(_BATCH)
    while batch := list(islice(rows, _BATCH)):
        saved = {(hour, operator, organisation): value for hour, operator, organisation, value in batch}
        found = list(
            tally.objects.filter(
                hour__in={hour for hour, _, _ in saved}, operator__in={operator for _, operator, _ in saved}
            )
        )
        changed = [row for row in found if (row.hour, row.operator_id, row.organisation_id) in saved]
        for row in changed:
            row.saved_us = saved[row.hour, row.operator_id, row.organisation_id]
        tally.objects.bulk_update(changed, ["saved_us"], batch_size=200)
    hours = tally.objects.values_list("hour", flat=True).distinct().order_by()
    stale.objects.bulk_create([stale(hour=hour) for hour in hours], ignore_conflicts=True, batch_size=500)


def index_words(apps, schema_editor):
    if schema_editor.connection.vendor != "postgresql":
        return
    try:
        with transaction.atomic():
            schema_editor.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
            # As Django writes `icontains`.
            schema_editor.execute(
                "CREATE INDEX operators_by_words ON catalog_operator "
                "USING gin (UPPER(summary::text) gin_trgm_ops)"
            )
    except DatabaseError:
        # Not allowed, or not installed: searches read every summary then, which only takes longer.
        return


def forget_words(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP INDEX IF EXISTS operators_by_words")


class Migration(migrations.Migration):
    dependencies = [("catalog", "0009_rollups_made")]
    operations = [
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.RunPython(index_words, forget_words),
    ]
