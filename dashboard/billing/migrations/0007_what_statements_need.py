"""The ledger has what statements need of a usage row, whose number it keeps without referring to it. The column
stays as it is: the version before writes it meanwhile. The ledger is made anew on SQLite: its guards with it."""

from importlib import import_module

from django.db import migrations, models

guards = import_module("dashboard.billing.migrations.0002_guards")

FILL = """
UPDATE billing_ledgerentry SET
    operator_key = (SELECT o.key FROM catalog_usage u JOIN catalog_operator o ON o.id = u.operator_id
                    WHERE u.id = usage_id),
    job_name = COALESCE((SELECT j.name FROM catalog_usage u JOIN catalog_job j ON j.id = u.job_id
                         WHERE u.id = usage_id), '')
WHERE usage_id IS NOT NULL
"""


def checked(apps, schema_editor):
    """PostgreSQL alters no table whose rows still wait for their checks."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0006_refunds_of_payments'),
        ('catalog', '0015_store_scrubbed'),
    ]
    # Nothing may refer to a table of parts.
    run_before = [('catalog', '0016_usage_by_month')]

    operations = [
        migrations.RunPython(guards.release, guards.guard),
        migrations.RemoveConstraint(
            model_name='ledgerentry',
            name='a_charge_has_its_usage',
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='operator_key',
            field=models.CharField(blank=True, db_default='', default='', max_length=80),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='job_name',
            field=models.CharField(blank=True, db_default='', default='', max_length=200),
        ),
        migrations.RunSQL(FILL),
        migrations.RunPython(checked),
        migrations.AlterField(
            model_name='ledgerentry',
            name='usage',
            field=models.BigIntegerField(blank=True, db_column='usage_id', null=True, unique=True),
        ),
        migrations.RenameField(
            model_name='ledgerentry',
            old_name='usage',
            new_name='usage_number',
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(('kind', 'charge'), ('usage_number__isnull', False), ('rule__isnull', False)),
                    models.Q(models.Q(('kind', 'charge'), _negated=True), ('usage_number__isnull', True)),
                    _connector='OR',
                ),
                name='a_charge_has_its_usage',
            ),
        ),
        migrations.RunPython(guards.guard, guards.release),
    ]
