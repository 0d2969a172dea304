"""Refunds are bound to their payment. The ledger is made anew on SQLite: its guards with it."""

from importlib import import_module

import django.db.models.deletion
from django.db import migrations, models

guards = import_module("dashboard.billing.migrations.0002_guards")


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0005_ended_spendings'),
        ('catalog', '0013_misses_of_reports'),
    ]

    operations = [
        migrations.RunPython(guards.release, guards.guard),
        migrations.AddField(
            model_name='ledgerentry',
            name='refund_of',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='refunds', to='billing.ledgerentry'),
        ),
        migrations.AddIndex(
            model_name='ledgerentry',
            index=models.Index(condition=models.Q(('refund_of__isnull', False)), fields=['refund_of'], name='refunds_of_payment'),
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(condition=models.Q(('kind', 'refund'), ('refund_of__isnull', True), _connector='OR'), name='only_refunds_are_of_a_payment'),
        ),
        migrations.RunPython(guards.guard, guards.release),
    ]
