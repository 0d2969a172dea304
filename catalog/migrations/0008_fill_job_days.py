"""What was served before is counted per job, too; what a miss would have called is taken as one call each."""

from django.db import migrations
from django.db.models import Count, F, Max, Sum
from django.db.models.functions import TruncDay

SAVED = Sum(F("calls") * (F("default_us") - F("median_us")))


def fill(apps, schema_editor):
    served = apps.get_model("catalog", "Usage").objects.filter(job__isnull=False)
    job_day = apps.get_model("catalog", "JobDay")
    days = served.annotate(start=TruncDay("served_at")).values("job_id", "start", "method")
    sums = days.annotate(
        n=Count("pk"), c=Sum("calls"), d=Sum(F("calls") * F("default_us")), s=SAVED
    ).order_by()
    job_day.objects.bulk_create(
        (
            job_day(job_id=row["job_id"], start=row["start"], method=row["method"], hits=row["n"], calls=row["c"],
                    default_us=row["d"], saved_us=row["s"])
            for row in sums
        ),
        batch_size=500,
    )
    place = apps.get_model("catalog", "JobPlace")
    places = served.filter(implementation__isnull=False).values(
        "job_id", "implementation__target", "implementation__setting"
    )
    place.objects.bulk_create(
        (
            place(job_id=row["job_id"], target_id=row["implementation__target"],
                  setting_id=row["implementation__setting"], last_at=row["last"])
            for row in places.annotate(last=Max("served_at")).order_by()
        ),
        batch_size=500,
    )
    asked = apps.get_model("catalog", "JobOperator")
    asked.objects.update(miss_calls=F("misses"), hit_calls=F("hits"))
    found = {
        (row["job_id"], row["operator_id"]): (row["c"], row["s"])
        for row in served.values("job_id", "operator_id").annotate(c=Sum("calls"), s=SAVED).order_by()
    }
    changed = []
    for row in asked.objects.iterator(2000):
        if (row.job_id, row.operator_id) in found:
            row.hit_calls, row.saved_us = found[row.job_id, row.operator_id]
            changed.append(row)
    asked.objects.bulk_update(changed, ["hit_calls", "saved_us"], batch_size=200)


class Migration(migrations.Migration):
    dependencies = [("catalog", "0007_job_days")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
