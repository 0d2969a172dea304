"""Agreements on further uses. The ledger is made anew on SQLite: its guards with it."""

from importlib import import_module

import dashboard.billing.models
import django.db.models.deletion
from django.db import migrations, models

guards = import_module("dashboard.billing.migrations.0002_guards")


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0003_charges_default'),
        ('catalog', '0008_kept_answers'),
    ]

    operations = [
        migrations.RunPython(guards.release, guards.guard),
        migrations.AddField(
            model_name='ledgerentry',
            name='agreement',
            field=models.CharField(blank=True, db_default='', default='', max_length=40),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='uses',
            field=models.PositiveBigIntegerField(db_default=1, default=1),
        ),
        migrations.RunPython(guards.guard, guards.release),
        migrations.CreateModel(
            name='JobSpending',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job', models.CharField(max_length=200)),
                ('limit_micros', models.BigIntegerField()),
                ('spent_micros', models.BigIntegerField(default=0)),
                ('uses', models.PositiveBigIntegerField(default=0)),
                ('last_at', models.DateTimeField()),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.organisation')),
            ],
            options={
                'indexes': [models.Index(fields=['organisation', '-last_at'], name='spendings_latest_first')],
                'constraints': [models.UniqueConstraint(fields=('organisation', 'job'), name='one_spending_per_job'), models.CheckConstraint(condition=models.Q(('spent_micros__gte', 0)), name='spending_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='UseAgreement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reference', models.CharField(default=dashboard.billing.models.new_agreement, max_length=40, unique=True)),
                ('job', models.CharField(max_length=200)),
                ('limit_micros', models.BigIntegerField()),
                ('calls', models.FloatField()),
                ('default_us', models.FloatField()),
                ('median_us', models.FloatField()),
                ('is_default', models.BooleanField(default=False)),
                ('made_at', models.DateTimeField(auto_now_add=True)),
                ('valid_until', models.DateTimeField(db_index=True)),
                ('implementation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.implementation')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.organisation')),
                ('rule', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.pricerule')),
            ],
            options={
                'indexes': [models.Index(fields=['organisation', 'job', 'implementation'], name='agreements_of_job')],
            },
        ),
    ]
