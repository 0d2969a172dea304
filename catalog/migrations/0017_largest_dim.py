"""Each operator's largest size, for searches. Filled in batches; the version before writes rows without it, which
have 0."""

from django.db import migrations, models

BATCH = 2000


def fill(apps, schema_editor):
    rows = apps.get_model("catalog", "Operator").objects
    last = 0
    while batch := list(rows.filter(pk__gt=last).order_by("pk")[:BATCH]):
        for row in batch:
            row.largest_dim = max(_sizes(row.graph), default=0)
        rows.bulk_update(batch, ["largest_dim"], batch_size=200)
        last = batch[-1].pk


def _sizes(part):
    """Every size in a shape, wherever it stands."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "shape" and isinstance(value, list):
                yield from (size for size in value if isinstance(size, int))
            else:
                yield from _sizes(value)
    elif isinstance(part, list):
        for value in part:
            yield from _sizes(value)


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0016_usage_by_month'),
    ]

    operations = [
        migrations.AddField(
            model_name='operator',
            name='largest_dim',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
