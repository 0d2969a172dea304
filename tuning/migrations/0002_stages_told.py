"""How far exploring has come, told to the bests there are: as `tuning.queue.reached` says."""

from django.db import migrations
from django.db.models import Exists, OuterRef, Q

KEY = ("operator_id", "target_id", "setting_id", "scope")


def tell(apps, schema_editor):
    best = apps.get_model("catalog", "Best").objects
    rows = apps.get_model("tuning", "Exploration").objects.filter(**{name: OuterRef(name) for name in KEY})
    again = Q(state__in=["done", "unsupported"]) & ~Q(pending_routes="")
    best.filter(Exists(rows.filter(again | Q(state__in=["queued", "running", "paused"])))).update(final=False)
    contested = Q(stage=2) | Q(stage=1, state="done")
    best.filter(Exists(rows.filter(contested))).update(stage="contest")
    best.filter(Exists(rows.filter(tuning_slices__gt=0))).update(stage="tuned")


class Migration(migrations.Migration):
    dependencies = [("tuning", "0001_tables"), ("catalog", "0004_defaults_marked")]
    operations = [migrations.RunPython(tell, migrations.RunPython.noop)]
