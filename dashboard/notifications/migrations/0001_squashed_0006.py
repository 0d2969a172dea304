"""What the first 6 made, at once, for a new database; one that has some of them goes on by them."""

import dashboard.notifications.models
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('notifications', '0001_tables'),
        ('notifications', '0002_workers_fall_silent'),
        ('notifications', '0003_routes_and_machines'),
        ('notifications', '0004_alerts'),
        ('notifications', '0005_sudden_spending'),
        ('notifications', '0006_failing_steps'),
    ]

    initial = True

    dependencies = [
        ('catalog', '0026_keys_made_with_keys'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Cursor',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=40, unique=True)),
                ('position', models.BigIntegerField(default=0)),
                ('gaps', models.JSONField(default=list)),
                ('at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rule', models.CharField(choices=[('silent', "A target's workers fell silent"), ('failing', 'A route fails on every trial'), ('disturbed', 'A machine is too disturbed to measure on'), ('queue_old', 'First results wait too long'), ('hits_falling', 'The hit rate falls'), ('regressed', 'A best became slower'), ('new_failure', 'Something fails for a new cause'), ('step_failing', 'A step of the service fails'), ('spend', 'Credit ends soon'), ('spend_sudden', 'Spending rises suddenly')], max_length=20)),
                ('cause', models.CharField(max_length=120)),
                ('severity', models.CharField(choices=[('critical', 'Critical'), ('error', 'Error'), ('warning', 'Warning'), ('info', 'Info')], max_length=10)),
                ('state', models.CharField(choices=[('firing', 'Firing'), ('acknowledged', 'Acknowledged'), ('resolved', 'Resolved')], default='firing', max_length=12)),
                ('text', models.CharField(max_length=160)),
                ('path', models.CharField(max_length=300)),
                ('facts', models.JSONField(default=dict)),
                ('told', models.BooleanField(default=False)),
                ('fired_at', models.DateTimeField()),
                ('seen_at', models.DateTimeField()),
                ('gone_at', models.DateTimeField(blank=True, null=True)),
                ('acknowledged_by', models.CharField(blank=True, max_length=150)),
                ('muted_until', models.DateTimeField(blank=True, null=True)),
                ('resolved_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
            ],
            options={
                'indexes': [models.Index(fields=['rule', 'cause', '-id'], name='alerts_of_cause'), models.Index(fields=['organisation', '-id'], name='alerts_of_organisation')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('rule', 'cause'), name='one_alert_per_cause')],
            },
        ),
        migrations.CreateModel(
            name='AlertDeed',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('what', models.CharField(choices=[('fired', 'Fired'), ('acknowledged', 'Acknowledged'), ('muted', 'Muted'), ('unmuted', 'Unmuted'), ('resolved', 'Resolved')], max_length=12)),
                ('by', models.CharField(blank=True, max_length=150)),
                ('detail', models.CharField(blank=True, max_length=300)),
                ('told', models.BooleanField(default=False)),
                ('at', models.DateTimeField()),
                ('alert', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deeds', to='notifications.alert')),
            ],
            options={
                'db_table': 'notifications_alert_deed',
                'indexes': [models.Index(fields=['alert', '-id'], name='deeds_of_alert')],
            },
        ),
        migrations.CreateModel(
            name='Subscription',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject', models.CharField(choices=[('operator', 'Operator'), ('job', 'Job'), ('model', 'Model'), ('filter', 'Filter'), ('service', 'Service'), ('account', 'Account')], max_length=10)),
                ('subject_key', models.CharField(max_length=100)),
                ('title', models.CharField(max_length=300)),
                ('filters', models.JSONField(default=dict)),
                ('on_hit', models.BooleanField(default=False)),
                ('on_explored', models.BooleanField(default=True)),
                ('on_best_changed', models.BooleanField(default=True)),
                ('on_withdrawn', models.BooleanField(default=True)),
                ('told_by', models.JSONField(default=dashboard.notifications.models._by_page)),
                ('digest', models.CharField(choices=[('at_once', 'At once'), ('hourly', 'Once an hour'), ('daily', 'Once a day')], default='at_once', max_length=10)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('changed_at', models.DateTimeField(auto_now=True)),
                ('on_silent', models.BooleanField(default=False)),
                ('on_disturbed', models.BooleanField(db_default=False, default=False)),
                ('on_failing', models.BooleanField(db_default=False, default=False)),
                ('on_queue_old', models.BooleanField(db_default=False, default=False)),
                ('on_hits_falling', models.BooleanField(db_default=False, default=False)),
                ('on_regressed', models.BooleanField(db_default=False, default=False)),
                ('on_new_failure', models.BooleanField(db_default=False, default=False)),
                ('on_spend', models.BooleanField(db_default=False, default=False)),
                ('on_spend_sudden', models.BooleanField(db_default=False, default=False)),
                ('on_step_failing', models.BooleanField(db_default=False, default=False)),
                ('job', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.job')),
                ('model', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.model')),
                ('operator', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.operator')),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='subscriptions', to='catalog.organisation')),
                ('setting', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.setting')),
                ('target', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.target')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='subscriptions', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('on_hit', True)), fields=['subject'], name='subscriptions_to_hits')],
                'constraints': [models.UniqueConstraint(fields=('user', 'subject_key'), name='one_subscription_per_subject'), models.CheckConstraint(condition=models.Q(models.Q(('job', None), ('model', None), ('operator__isnull', False), ('subject', 'operator')), models.Q(('job__isnull', False), ('model', None), ('operator', None), ('subject', 'job')), models.Q(('job', None), ('model__isnull', False), ('operator', None), ('subject', 'model')), models.Q(('job', None), ('model', None), ('operator', None), ('subject__in', ['filter', 'service', 'account'])), _connector='OR'), name='subscription_has_its_subject')],
            },
        ),
        migrations.CreateModel(
            name='Notification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('happening', models.CharField(choices=[('hit', 'A hit was served'), ('explored', 'An exploration ended'), ('best_changed', 'The best changed'), ('withdrawn', 'An implementation was withdrawn'), ('silent', "A target's workers fell silent"), ('failing', 'A route fails on every trial'), ('disturbed', 'A machine is too disturbed to measure on'), ('queue_old', 'First results wait too long'), ('hits_falling', 'The hit rate falls'), ('regressed', 'A best became slower'), ('new_failure', 'Something fails for a new cause'), ('step_failing', 'A step of the service fails'), ('spend', 'Credit ends soon'), ('spend_sudden', 'Spending rises suddenly'), ('test', 'A test message')], max_length=20)),
                ('key', models.CharField(max_length=120)),
                ('at', models.DateTimeField()),
                ('text', models.CharField(max_length=160)),
                ('path', models.CharField(max_length=300)),
                ('count', models.PositiveIntegerField(default=1)),
                ('facts', models.JSONField(default=dict)),
                ('shown', models.BooleanField(default=True)),
                ('read_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('operator', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.operator')),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to=settings.AUTH_USER_MODEL)),
                ('subscription', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='notifications', to='notifications.subscription')),
            ],
            options={
                'indexes': [models.Index(fields=['user', 'key'], name='notifications_by_key'), models.Index(condition=models.Q(('shown', True)), fields=['user', '-id'], name='inbox'), models.Index(condition=models.Q(('read_at', None), ('shown', True)), fields=['user'], name='unread')],
                'constraints': [models.UniqueConstraint(fields=('subscription', 'key'), name='one_notification_per_event')],
            },
        ),
        migrations.CreateModel(
            name='NotificationMessage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('channel', models.CharField(max_length=10)),
                ('digest', models.CharField(choices=[('at_once', 'At once'), ('hourly', 'Once an hour'), ('daily', 'Once a day')], max_length=10)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('sent', 'Sent'), ('failed', 'Failed'), ('dropped', 'Dropped')], default='waiting', max_length=10)),
                ('due_at', models.DateTimeField()),
                ('claimed_until', models.DateTimeField(blank=True, null=True)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('error', models.CharField(blank=True, max_length=300)),
                ('reached', models.JSONField(default=list)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'notifications_message',
                'indexes': [models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at'], name='messages_due'), models.Index(fields=['user', '-id'], name='messages_of_user')],
            },
        ),
        migrations.CreateModel(
            name='NotificationDelivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('channel', models.CharField(max_length=10)),
                ('digest', models.CharField(choices=[('at_once', 'At once'), ('hourly', 'Once an hour'), ('daily', 'Once a day')], max_length=10)),
                ('due_at', models.DateTimeField()),
                ('notification', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='notifications.notification')),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('message', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='notifications.notificationmessage')),
            ],
            options={
                'db_table': 'notifications_delivery',
                'indexes': [models.Index(condition=models.Q(('message', None)), fields=['due_at'], name='deliveries_due')],
                'constraints': [models.UniqueConstraint(fields=('notification', 'channel'), name='one_delivery_per_channel')],
            },
        ),
        migrations.CreateModel(
            name='PushDevice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('endpoint', models.CharField(max_length=1000)),
                ('endpoint_sha256', models.CharField(max_length=64, unique=True)),
                ('p256dh', models.CharField(max_length=120)),
                ('auth', models.CharField(max_length=40)),
                ('name', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('last_sent_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.CharField(blank=True, max_length=300)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='push_devices', to=settings.AUTH_USER_MODEL)),
            ],
        ),
    ]
