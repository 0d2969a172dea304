"""Usage is closed by months, and on PostgreSQL it is a table of months. Its rows are copied in one transaction:
for 10 million some minutes, in which nothing is drained and nothing charged."""

from datetime import UTC, datetime

from django.db import migrations, models
from django.utils import timezone

TABLE = "catalog_usage"
SINGLE = f"{TABLE}_single"
UNIQUE = models.UniqueConstraint(
    fields=["node", "segment", "offset", "item", "served_at"], name="one_usage_per_journal_item"
)


def in_months(apps, schema_editor):
    if schema_editor.connection.vendor != "postgresql":
        return
    usage, run = apps.get_model("catalog", "Usage"), schema_editor.execute
    run("SET CONSTRAINTS ALL IMMEDIATE")
    run(f"ALTER TABLE {TABLE} RENAME TO {SINGLE}")
    run(f"CREATE TABLE {TABLE} (LIKE {SINGLE} INCLUDING DEFAULTS) PARTITION BY RANGE (served_at)")
    run(f"CREATE TABLE {TABLE}_other PARTITION OF {TABLE} DEFAULT")
    for month in _months(schema_editor):
        run(
            f"CREATE TABLE {TABLE}_{month:%Y_%m} PARTITION OF {TABLE} "
            f"FOR VALUES FROM ('{month.isoformat()}') TO ('{_next(month).isoformat()}')"
        )
    run(f"INSERT INTO {TABLE} SELECT * FROM {SINGLE}")
    run(f"DROP TABLE {SINGLE}")
    # Columns of parts cannot be identities before PostgreSQL 17.
    run(f"CREATE SEQUENCE {TABLE}_id_seq OWNED BY {TABLE}.id")
    run(f"SELECT setval('{TABLE}_id_seq', (SELECT COALESCE(MAX(id), 0) + 1 FROM {TABLE}), false)")
    run(f"ALTER TABLE {TABLE} ALTER COLUMN id SET DEFAULT nextval('{TABLE}_id_seq')")
    run(f"ALTER TABLE {TABLE} ADD PRIMARY KEY (id, served_at)")
    run(UNIQUE.create_sql(usage, schema_editor))
    for statement in schema_editor._model_indexes_sql(usage):
        run(statement)
    for field in usage._meta.local_fields:
        if field.remote_field and field.db_constraint:
            run(_foreign_key(usage, field, schema_editor))


def _foreign_key(model, field, schema_editor):
    return schema_editor._create_fk_sql(model, field, "_fk_%(to_table)s_%(to_column)s")


def _months(schema_editor):
    """From the first that was served in, two ahead of today."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f"SELECT MIN(served_at) FROM {SINGLE}")
        (first,) = cursor.fetchone()
    now = timezone.now().astimezone(UTC)
    month = _first(min(first or now, now).astimezone(UTC))
    last = _next(_next(_first(now)))
    while month <= last:
        yield month
        month = _next(month)


def _first(at):
    return datetime(at.year, at.month, 1, tzinfo=UTC)


def _next(month):
    return datetime(month.year + month.month // 12, month.month % 12 + 1, 1, tzinfo=UTC)


class InOneTable:
    """Where usage has no parts. The table of months has its constraint from the beginning."""

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)


class RemoveConstraint(InOneTable, migrations.RemoveConstraint):
    pass


class AddConstraint(InOneTable, migrations.AddConstraint):
    pass


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0015_store_scrubbed'),
    ]

    operations = [
        migrations.CreateModel(
            name='ClosedUsage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('before', models.DateTimeField()),
                ('closed_at', models.DateTimeField()),
                ('by_day_before', models.DateTimeField(null=True)),
            ],
        ),
        RemoveConstraint(
            model_name='usage',
            name='one_usage_per_journal_item',
        ),
        AddConstraint(
            model_name='usage',
            constraint=UNIQUE,
        ),
        migrations.RunPython(in_months),
    ]
