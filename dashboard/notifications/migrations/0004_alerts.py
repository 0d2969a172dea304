import django.db.models.deletion
from django.db import migrations, models


def told_of_these_too(apps, schema_editor):
    """Who watches the service wants to know whether it works."""
    subscriptions = apps.get_model("notifications", "Subscription").objects
    watching = subscriptions.filter(subject="service", on_silent=True)
    watching.update(on_queue_old=True, on_hits_falling=True, on_regressed=True, on_new_failure=True)


def told(name):
    return migrations.AddField(
        model_name='subscription',
        name=name,
        field=models.BooleanField(db_default=False, default=False),
    )


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0019_recalls'),
        ('notifications', '0003_routes_and_machines'),
    ]

    operations = [
        told('on_queue_old'),
        told('on_hits_falling'),
        told('on_regressed'),
        told('on_new_failure'),
        told('on_spend'),
        migrations.AlterField(
            model_name='notification',
            name='happening',
            field=models.CharField(choices=[('hit', 'A hit was served'), ('explored', 'An exploration ended'), ('best_changed', 'The best changed'), ('withdrawn', 'An implementation was withdrawn'), ('silent', "A target's workers fell silent"), ('failing', 'A route fails on every trial'), ('disturbed', 'A machine is too disturbed to measure on'), ('queue_old', 'First results wait too long'), ('hits_falling', 'The hit rate falls'), ('regressed', 'A best became slower'), ('new_failure', 'Something fails for a new cause'), ('spend', 'Credit ends soon'), ('test', 'A test message')], max_length=20),
        ),
        migrations.RemoveConstraint(
            model_name='subscription',
            name='subscription_has_its_subject',
        ),
        migrations.AlterField(
            model_name='subscription',
            name='subject',
            field=models.CharField(choices=[('operator', 'Operator'), ('job', 'Job'), ('model', 'Model'), ('filter', 'Filter'), ('service', 'Service'), ('account', 'Account')], max_length=10),
        ),
        migrations.AddConstraint(
            model_name='subscription',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('job', None), ('model', None), ('operator__isnull', False), ('subject', 'operator')), models.Q(('job__isnull', False), ('model', None), ('operator', None), ('subject', 'job')), models.Q(('job', None), ('model__isnull', False), ('operator', None), ('subject', 'model')), models.Q(('job', None), ('model', None), ('operator', None), ('subject__in', ['filter', 'service', 'account'])), _connector='OR'), name='subscription_has_its_subject'),
        ),
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rule', models.CharField(choices=[('silent', "A target's workers fell silent"), ('failing', 'A route fails on every trial'), ('disturbed', 'A machine is too disturbed to measure on'), ('queue_old', 'First results wait too long'), ('hits_falling', 'The hit rate falls'), ('regressed', 'A best became slower'), ('new_failure', 'Something fails for a new cause'), ('spend', 'Credit ends soon')], max_length=20)),
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
        migrations.RunPython(told_of_these_too, migrations.RunPython.noop),
    ]
