import dashboard.webhooks.models
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('catalog', '0001_tables'),
    ]

    operations = [
        migrations.CreateModel(
            name='Endpoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='webhook_endpoints', to='catalog.organisation')),
                ('url', models.CharField(max_length=2048)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('event_types', models.JSONField(default=list)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('disabled_at', models.DateTimeField(blank=True, null=True)),
                ('disabled_reason', models.CharField(blank=True, max_length=300)),
                ('failing_since', models.DateTimeField(blank=True, null=True)),
                ('failures_in_a_row', models.PositiveIntegerField(default=0)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'url'), name='one_endpoint_per_address')],
            },
        ),
        migrations.CreateModel(
            name='Message',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='webhook_messages', to='catalog.organisation')),
                ('public_id', models.CharField(default=dashboard.webhooks.models._message_id, max_length=40, unique=True)),
                ('key', models.CharField(max_length=200)),
                ('event_type', models.CharField(choices=[('exploration.ended', 'Exploration Ended'), ('best.changed', 'Best Changed'), ('implementation.withdrawn', 'Implementation Withdrawn'), ('hit.served', 'Hit Served'), ('ledger.charged', 'Ledger Charged'), ('credit.added', 'Credit Added'), ('payment.required', 'Payment Required'), ('endpoint.test', 'Endpoint Test')], max_length=40)),
                ('data', models.JSONField(default=dict)),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'key'), name='one_message_per_key')],
            },
        ),
        migrations.CreateModel(
            name='Secret',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='webhooks.endpoint')),
                ('sealed', models.TextField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(condition=models.Q(('expires_at', None)), fields=('endpoint',), name='one_current_secret')],
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='webhooks.endpoint')),
                ('message', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='webhooks.message')),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('failed', 'Failed')], default='pending', max_length=10)),
                ('tries', models.PositiveIntegerField(default=0)),
                ('began_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('next_try_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('claimed_until', models.DateTimeField(blank=True, null=True)),
                ('fence', models.PositiveIntegerField(default=0)),
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
                ('delivery', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='webhooks.delivery')),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('status', models.PositiveIntegerField(null=True)),
                ('duration_ms', models.FloatField(default=0)),
                ('error', models.CharField(blank=True, max_length=300)),
                ('excerpt', models.TextField(blank=True)),
            ],
        ),
    ]
