"""Which bests are the default of their place: as `catalog.best.seats.default_of` says."""

from django.db import migrations
from django.db.models import F, OuterRef, Subquery

KEY = ("operator_id", "target_id", "setting_id", "scope")


def mark(apps, schema_editor):
    made = {f"implementation__{name}": OuterRef(name) for name in KEY}
    timed = apps.get_model("catalog", "Measurement").objects.filter(**made, purpose="default").order_by("-pk")
    best = apps.get_model("catalog", "Best").objects
    found = best.annotate(
        default_route=Subquery(timed.values("implementation__route")[:1]),
        default_candidate=Subquery(timed.values("implementation__candidate_sha256")[:1]),
    ).filter(route=F("default_route"), implementation__candidate_sha256=F("default_candidate"))
    best.filter(pk__in=found.values("pk")).update(is_default=True)


class Migration(migrations.Migration):
    dependencies = [("catalog", "0003_stages_and_default_hits")]
    operations = [migrations.RunPython(mark, migrations.RunPython.noop)]
