"""A hit that cost nothing opened what it served for ever, and now opens it for an hour. Purchases of before, of
which every charge is known and was nothing, end so too; one whose usage rows are gone stays."""

from datetime import timedelta

from django.db import migrations

CHARGE = "charge"


def end(apps, schema_editor):
    usages = apps.get_model("catalog", "Usage").objects
    charges = apps.get_model("billing", "LedgerEntry").objects.filter(kind=CHARGE)
    closed = apps.get_model("catalog", "ClosedUsage").objects.order_by("-before").first()
    open_ones = apps.get_model("billing", "Purchase").objects.filter(ends_at=None)
    if closed is not None:
        open_ones = open_ones.filter(first_at__gte=closed.before)
    for one in open_ones.iterator():
        hits = usages.filter(organisation=one.organisation_id, implementation=one.implementation_id)
        known = charges.filter(organisation=one.organisation_id, usage_number__in=hits.values("pk"))
        if known.exists() and not known.exclude(amount_micros=0).exists():
            one.ends_at = one.first_at + timedelta(hours=1)
            one.save(update_fields=["ends_at"])


class Migration(migrations.Migration):
    dependencies = [("billing", "0009_purchases_end"), ("catalog", "0025_kernels_by_number")]
    operations = [migrations.RunPython(end, migrations.RunPython.noop, elidable=True)]
