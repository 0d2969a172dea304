"""What the first 6 made, at once, for a new database; one that has some of them goes on by them."""

import dashboard.webhooks.models
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('webhooks', '0001_tables'),
        ('webhooks', '0002_workers_fall_silent'),
        ('webhooks', '0003_routes_and_machines'),
        ('webhooks', '0004_alerts_and_pagerduty'),
        ('webhooks', '0005_sudden_spending'),
        ('webhooks', '0006_failing_steps'),
    ]

    initial = True

    dependencies = [
        ('catalog', '0026_keys_made_with_keys'),
    ]

    operations = [
        migrations.CreateModel(
            name='Endpoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('url', models.CharField(max_length=2048)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('event_types', models.JSONField(default=list)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('disabled_at', models.DateTimeField(blank=True, null=True)),
                ('disabled_reason', models.CharField(blank=True, max_length=300)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('failures_in_a_row', models.PositiveIntegerField(default=0)),
                ('form', models.CharField(choices=[('standard', 'Standard Webhooks'), ('slack', 'Slack-compatible'), ('pagerduty', 'PagerDuty-compatible')], db_default='standard', default='standard', max_length=10)),
                ('sealed_key', models.TextField(blank=True, db_default='', default='')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='webhook_endpoints', to='catalog.organisation')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'url'), name='one_endpoint_per_address')],
            },
        ),
        migrations.CreateModel(
            name='Message',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(default=dashboard.webhooks.models._message_id, max_length=40, unique=True)),
                ('key', models.CharField(max_length=200)),
                ('event_type', models.CharField(choices=[('exploration.ended', 'Exploration Ended'), ('best.changed', 'Best Changed'), ('implementation.withdrawn', 'Implementation Withdrawn'), ('hit.served', 'Hit Served'), ('workers.silent', 'Workers Silent'), ('route.failing', 'Route Failing'), ('machine.disturbed', 'Machine Disturbed'), ('queue.old', 'Queue Old'), ('hits.falling', 'Hits Falling'), ('best.regressed', 'Best Regressed'), ('failure.new', 'Failure New'), ('step.failing', 'Step Failing'), ('credit.low', 'Credit Low'), ('spending.sudden', 'Spending Sudden'), ('alert.acknowledged', 'Alert Acknowledged'), ('alert.resolved', 'Alert Resolved'), ('ledger.charged', 'Ledger Charged'), ('credit.added', 'Credit Added'), ('payment.required', 'Payment Required'), ('endpoint.test', 'Endpoint Test')], max_length=40)),
                ('data', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='webhook_messages', to='catalog.organisation')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'key'), name='one_message_per_key')],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('failed', 'Failed')], default='pending', max_length=10)),
                ('tries', models.PositiveIntegerField(default=0)),
                ('began_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('next_try_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('claimed_until', models.DateTimeField(blank=True, null=True)),
                ('fence', models.PositiveIntegerField(default=0)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='webhooks.endpoint')),
                ('message', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='webhooks.message')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('state', 'pending')), fields=['endpoint', 'next_try_at'], name='webhooks_due'), models.Index(fields=['endpoint', '-id'], name='webhooks_of_endpoint'), models.Index(condition=models.Q(('state__in', ['pending', 'failed'])), fields=['endpoint', 'state'], name='webhooks_by_state')],
                'constraints': [models.UniqueConstraint(fields=('endpoint', 'message'), name='one_delivery_per_endpoint')],
            },
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('status', models.PositiveIntegerField(null=True)),
                ('duration_ms', models.FloatField(default=0)),
                ('error', models.CharField(blank=True, max_length=300)),
                ('excerpt', models.TextField(blank=True)),
                ('delivery', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='webhooks.delivery')),
            ],
        ),
        migrations.CreateModel(
            name='Secret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sealed', models.TextField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='webhooks.endpoint')),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('expires_at', None)), fields=('endpoint',), name='one_current_secret')],
            },
        ),
    ]
