"""The organisation that was there is the host; lookups of before are due to be rolled up."""

from django.db import migrations


def fill(apps, schema_editor):
    apps.get_model("catalog", "Organisation").objects.filter(name="default").update(host=True)
    hours = apps.get_model("catalog", "LookupTally").objects.values_list("hour", flat=True).distinct().order_by()
    stale = apps.get_model("catalog", "StaleHour")
    stale.objects.bulk_create([stale(hour=hour) for hour in hours], ignore_conflicts=True, batch_size=500)


class Migration(migrations.Migration):
    dependencies = [("catalog", "0004_accounts_and_rollups")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
