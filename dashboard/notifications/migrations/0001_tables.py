import dashboard.notifications.models
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('catalog', '0001_tables'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Subscription',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='subscriptions', to=settings.AUTH_USER_MODEL)),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='subscriptions', to='catalog.organisation')),
                ('subject', models.CharField(choices=[('operator', 'Operator'), ('job', 'Job'), ('model', 'Model'), ('filter', 'Filter')], max_length=10)),
                ('subject_key', models.CharField(max_length=100)),
                ('title', models.CharField(max_length=300)),
                ('operator', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.operator')),
                ('target', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.target')),
                ('setting', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.setting')),
                ('job', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.job')),
                ('model', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.model')),
                ('filters', models.JSONField(default=dict)),
                ('on_hit', models.BooleanField(default=False)),
                ('on_explored', models.BooleanField(default=True)),
                ('on_best_changed', models.BooleanField(default=True)),
                ('on_withdrawn', models.BooleanField(default=True)),
                ('told_by', models.JSONField(default=dashboard.notifications.models._by_page)),
                ('digest', models.CharField(choices=[('at_once', 'At once'), ('hourly', 'Once an hour'), ('daily', 'Once a day')], default='at_once', max_length=10)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('changed_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('on_hit', True)), fields=['subject'], name='subscriptions_to_hits')],
                'constraints': [models.UniqueConstraint(fields=('user', 'subject_key'), name='one_subscription_per_subject'), models.CheckConstraint(condition=models.Q(models.Q(('job', None), ('model', None), ('operator__isnull', False), ('subject', 'operator')), models.Q(('job__isnull', False), ('model', None), ('operator', None), ('subject', 'job')), models.Q(('job', None), ('model__isnull', False), ('operator', None), ('subject', 'model')), models.Q(('job', None), ('model', None), ('operator', None), ('subject', 'filter')), _connector='OR'), name='subscription_has_its_subject')],
            },
        ),
        migrations.CreateModel(
            name='NotificationMessage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
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
            ],
            options={
                'db_table': 'notifications_message',
                'indexes': [models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at'], name='messages_due'), models.Index(fields=['user', '-id'], name='messages_of_user')],
            },
        ),
        migrations.CreateModel(
            name='PushDevice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='push_devices', to=settings.AUTH_USER_MODEL)),
                ('endpoint', models.CharField(max_length=1000)),
                ('endpoint_sha256', models.CharField(max_length=64, unique=True)),
                ('p256dh', models.CharField(max_length=120)),
                ('auth', models.CharField(max_length=40)),
                ('name', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('last_sent_at', models.DateTimeField(blank=True, null=True)),
                ('error', models.CharField(blank=True, max_length=300)),
            ],
        ),
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
            name='Notification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subscription', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='notifications', to='notifications.subscription')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to=settings.AUTH_USER_MODEL)),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('happening', models.CharField(choices=[('hit', 'A hit was served'), ('explored', 'An exploration ended'), ('best_changed', 'The best changed'), ('withdrawn', 'An implementation was withdrawn'), ('test', 'A test message')], max_length=20)),
                ('key', models.CharField(max_length=120)),
                ('operator', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.operator')),
                ('at', models.DateTimeField()),
                ('text', models.CharField(max_length=160)),
                ('path', models.CharField(max_length=300)),
                ('count', models.PositiveIntegerField(default=1)),
                ('facts', models.JSONField(default=dict)),
                ('shown', models.BooleanField(default=True)),
                ('read_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'indexes': [models.Index(fields=['user', 'key'], name='notifications_by_key'), models.Index(condition=models.Q(('shown', True)), fields=['user', '-id'], name='inbox'), models.Index(condition=models.Q(('read_at', None), ('shown', True)), fields=['user'], name='unread')],
                'constraints': [models.UniqueConstraint(fields=('subscription', 'key'), name='one_notification_per_event')],
            },
        ),
        migrations.CreateModel(
            name='NotificationDelivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('notification', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='notifications.notification')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('channel', models.CharField(max_length=10)),
                ('digest', models.CharField(choices=[('at_once', 'At once'), ('hourly', 'Once an hour'), ('daily', 'Once a day')], max_length=10)),
                ('due_at', models.DateTimeField()),
                ('message', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='notifications.notificationmessage')),
            ],
            options={
                'db_table': 'notifications_delivery',
                'indexes': [models.Index(condition=models.Q(('message', None)), fields=['due_at'], name='deliveries_due')],
                'constraints': [models.UniqueConstraint(fields=('notification', 'channel'), name='one_delivery_per_channel')],
            },
        ),
    ]
