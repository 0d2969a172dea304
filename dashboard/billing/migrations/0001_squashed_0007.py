"""What the first 7 made, at once, for a new database; one that has some of them goes on by them."""

from importlib import import_module

import dashboard.billing.models
import django.db.models.deletion
import uuid
from django.db import migrations, models

guards = import_module("dashboard.billing.migrations.0002_guards")


class Migration(migrations.Migration):

    replaces = [
        ('billing', '0001_tables'),
        ('billing', '0002_guards'),
        ('billing', '0003_charges_default'),
        ('billing', '0004_agreements'),
        ('billing', '0005_ended_spendings'),
        ('billing', '0006_refunds_of_payments'),
        ('billing', '0007_what_statements_need'),
    ]

    initial = True

    dependencies = [
        ('catalog', '0001_squashed_0015'),
    ]

    operations = [
        migrations.CreateModel(
            name='PriceRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('line', models.UUIDField(default=uuid.uuid4, editable=False)),
                ('version', models.PositiveIntegerField(default=1)),
                ('name', models.CharField(max_length=100)),
                ('method', models.CharField(blank=True, choices=[('library', 'Library'), ('compiler', 'Compiler'), ('manual', 'Manual')], max_length=20)),
                ('route', models.CharField(blank=True, max_length=40)),
                ('op_type', models.CharField(blank=True, max_length=100)),
                ('scope', models.CharField(blank=True, choices=[('shared', 'shared'), ('private', 'private')], max_length=10)),
                ('mode', models.CharField(choices=[('prompt', 'Prompt'), ('withhold', 'Withhold'), ('free', 'Free')], default='prompt', max_length=10)),
                ('currency', models.CharField(max_length=3)),
                ('priority', models.IntegerField(default=0)),
                ('per_hit_micros', models.BigIntegerField(default=0)),
                ('per_saved_second_micros', models.BigIntegerField(default=0)),
                ('tiers', models.JSONField(default=list)),
                ('cap_month_micros', models.BigIntegerField(blank=True, null=True)),
                ('cap_operator_month_micros', models.BigIntegerField(blank=True, null=True)),
                ('from_at', models.DateTimeField()),
                ('until_at', models.DateTimeField(blank=True, null=True)),
                ('note', models.CharField(blank=True, max_length=300)),
                ('created_by', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('charges_default', models.BooleanField(db_default=False, default=False)),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.organisation')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('line', 'version'), name='one_row_per_rule_version'), models.CheckConstraint(condition=models.Q(('per_hit_micros__gte', 0), ('per_saved_second_micros__gte', 0)), name='prices_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='LedgerEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('kind', models.CharField(choices=[('charge', 'Charge'), ('credit', 'Credit'), ('adjustment', 'Adjustment'), ('refund', 'Refund')], max_length=10)),
                ('amount_micros', models.BigIntegerField()),
                ('currency', models.CharField(max_length=3)),
                ('balance_after_micros', models.BigIntegerField()),
                ('list_micros', models.BigIntegerField(default=0)),
                ('method', models.CharField(blank=True, max_length=20)),
                ('route', models.CharField(blank=True, max_length=40)),
                ('reason', models.CharField(blank=True, max_length=300)),
                ('actor', models.CharField(blank=True, max_length=200)),
                ('provider', models.CharField(blank=True, max_length=40)),
                ('event_id', models.CharField(blank=True, max_length=200)),
                ('event_sha256', models.CharField(blank=True, max_length=64)),
                ('agreement', models.CharField(blank=True, db_default='', default='', max_length=40)),
                ('uses', models.PositiveBigIntegerField(db_default=1, default=1)),
                ('operator_key', models.CharField(blank=True, db_default='', default='', max_length=80)),
                ('job_name', models.CharField(blank=True, db_default='', default='', max_length=200)),
                ('usage_number', models.BigIntegerField(blank=True, db_column='usage_id', null=True, unique=True)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ledger', to='catalog.organisation')),
                ('refund_of', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='refunds', to='billing.ledgerentry')),
                ('rule', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.pricerule')),
            ],
            options={
                'verbose_name_plural': 'ledger entries',
                'indexes': [models.Index(fields=['organisation', '-id'], name='ledger_newest_first'), models.Index(fields=['organisation', 'at'], name='ledger_by_time'), models.Index(fields=['kind', '-id'], name='ledger_by_kind'), models.Index(condition=models.Q(('refund_of__isnull', False)), fields=['refund_of'], name='refunds_of_payment')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('provider', ''), _negated=True), fields=('provider', 'event_id'), name='one_entry_per_payment'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'charge'), ('amount_micros__lte', 0)), models.Q(('kind', 'credit'), ('amount_micros__gt', 0)), models.Q(('kind', 'refund'), ('amount_micros__lt', 0)), ('kind', 'adjustment'), _connector='OR'), name='amounts_have_their_sign'), models.CheckConstraint(condition=models.Q(('kind', 'refund'), ('refund_of__isnull', True), _connector='OR'), name='only_refunds_are_of_a_payment'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'charge'), ('usage_number__isnull', False), ('rule__isnull', False)), models.Q(models.Q(('kind', 'charge'), _negated=True), ('usage_number__isnull', True)), _connector='OR'), name='a_charge_has_its_usage')],
            },
        ),
        migrations.CreateModel(
            name='Purchase',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('first_at', models.DateTimeField()),
                ('implementation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.implementation')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'implementation'), name='one_purchase_per_implementation')],
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
        migrations.CreateModel(
            name='Account',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reference', models.CharField(default=dashboard.billing.models.new_reference, max_length=40, unique=True)),
                ('currency', models.CharField(max_length=3)),
                ('balance_micros', models.BigIntegerField(default=0)),
                ('plan', models.CharField(choices=[('none', 'None'), ('prepaid', 'Prepaid'), ('postpaid', 'Postpaid')], default='none', max_length=10)),
                ('plan_until', models.DateTimeField(blank=True, null=True)),
                ('credit_limit_micros', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('organisation', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='account', to='catalog.organisation')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('credit_limit_micros__gte', 0)), name='credit_limit_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='Held',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('times', models.PositiveBigIntegerField(default=0)),
                ('price_micros', models.BigIntegerField(default=0)),
                ('last_at', models.DateTimeField()),
                ('implementation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.implementation')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'implementation', 'day'), name='one_row_per_withheld_and_day')],
            },
        ),
        migrations.CreateModel(
            name='JobSpending',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job', models.CharField(max_length=200)),
                ('limit_micros', models.BigIntegerField()),
                ('spent_micros', models.BigIntegerField(default=0)),
                ('uses', models.PositiveBigIntegerField(default=0)),
                ('last_at', models.DateTimeField()),
                ('ended_as', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('ended_at', models.DateTimeField(null=True)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.organisation')),
            ],
            options={
                'indexes': [models.Index(fields=['organisation', '-last_at'], name='spendings_latest_first')],
                'constraints': [models.CheckConstraint(condition=models.Q(('spent_micros__gte', 0)), name='spending_not_negative'), models.UniqueConstraint(fields=('organisation', 'job', 'ended_as'), name='one_spending_per_job')],
            },
        ),
        migrations.CreateModel(
            name='LedgerDay',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('kind', models.CharField(choices=[('charge', 'Charge'), ('credit', 'Credit'), ('adjustment', 'Adjustment'), ('refund', 'Refund')], max_length=10)),
                ('method', models.CharField(blank=True, max_length=20)),
                ('entries', models.PositiveBigIntegerField(default=0)),
                ('amount_micros', models.BigIntegerField(default=0)),
                ('saved_us', models.FloatField(default=0)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.organisation')),
            ],
            options={
                'indexes': [models.Index(fields=['day'], name='ledger_sums_by_day')],
                'constraints': [models.UniqueConstraint(fields=('organisation', 'day', 'kind', 'method'), name='one_ledger_sum_per_day')],
            },
        ),
        migrations.CreateModel(
            name='MonthCount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('line', models.UUIDField()),
                ('month', models.DateField()),
                ('operator_number', models.BigIntegerField(default=0)),
                ('hits', models.PositiveBigIntegerField(default=0)),
                ('amount_micros', models.BigIntegerField(default=0)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.organisation')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'line', 'month', 'operator_number'), name='one_count_per_rule_and_month')],
            },
        ),
        migrations.RunPython(guards.guard, guards.release),
    ]
