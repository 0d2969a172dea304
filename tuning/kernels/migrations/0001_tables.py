import catalog.fields
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
            name='Kernel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='kernels', to='catalog.organisation')),
                ('name', models.CharField(max_length=80)),
                ('description', models.CharField(blank=True, max_length=500)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'permissions': [('decide', 'Can approve, reject and revoke submitted kernels')],
                'constraints': [models.UniqueConstraint(fields=('organisation', 'name'), name='one_kernel_per_name')],
            },
        ),
        migrations.CreateModel(
            name='KernelVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kernel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='kernels.kernel')),
                ('number', models.PositiveIntegerField()),
                ('language', models.CharField(choices=[('c', 'C'), ('c++', 'C++')], max_length=5)),
                ('source', models.TextField()),
                ('source_sha256', models.CharField(max_length=64)),
                ('pattern', catalog.fields.ExactJSONField()),
                ('flags', catalog.fields.ExactJSONField(default=list)),
                ('author', models.CharField(max_length=200)),
                ('licence', models.CharField(max_length=60)),
                ('example', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='catalog.operator')),
                ('state', models.CharField(choices=[('submitted', 'Submitted'), ('building', 'Building'), ('failed', 'Failed'), ('awaiting', 'Awaiting'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('revoked', 'Revoked'), ('superseded', 'Superseded')], default='submitted', max_length=20)),
                ('state_reason', models.CharField(blank=True, max_length=500)),
                ('explorations_seen', models.BigIntegerField(default=0)),
                ('submitted_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('submitted_at', models.DateTimeField(auto_now_add=True)),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('approved_at', models.DateTimeField(blank=True, null=True)),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['state'], name='kernel_versions_by_state')],
                'constraints': [models.UniqueConstraint(fields=('kernel', 'number'), name='one_kernel_version_per_number'), models.UniqueConstraint(condition=models.Q(('state__in', ('submitted', 'building', 'failed', 'awaiting', 'approved'))), fields=('kernel',), name='one_live_version_per_kernel'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'approved'), _negated=True), models.Q(('decided_by__isnull', False), models.Q(('decided_by', models.F('submitted_by')), _negated=True)), _connector='OR'), name='approved_by_another_user')],
            },
        ),
        migrations.CreateModel(
            name='KernelDecision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='decisions', to='kernels.kernelversion')),
                ('step', models.CharField(choices=[('submitted', 'Submitted'), ('building', 'Building'), ('failed', 'Failed'), ('awaiting', 'Awaiting'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('revoked', 'Revoked'), ('superseded', 'Superseded'), ('noted', 'Noted')], max_length=20)),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('who', models.CharField(max_length=150)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='KernelEvaluation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='evaluations', to='kernels.kernelversion')),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.operator')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.target')),
                ('setting', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.setting')),
                ('state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('dead', 'Dead')], default='queued', max_length=20)),
                ('lease_owner', models.CharField(blank=True, max_length=100)),
                ('lease_expires_at', models.DateTimeField(blank=True, null=True)),
                ('fence', models.PositiveBigIntegerField(default=0)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('doing', models.CharField(blank=True, max_length=200)),
                ('status', models.CharField(blank=True, max_length=20)),
                ('detail', models.TextField(blank=True)),
                ('log_tail', models.TextField(blank=True)),
                ('max_error', models.FloatField(null=True)),
                ('tolerance', models.FloatField(null=True)),
                ('median_us', models.FloatField(null=True)),
                ('default_us', models.FloatField(null=True)),
                ('ratio_to_default', models.FloatField(null=True)),
                ('ratio_low', models.FloatField(null=True)),
                ('ratio_high', models.FloatField(null=True)),
                ('incumbent_route', models.CharField(blank=True, max_length=40)),
                ('incumbent_label', models.CharField(blank=True, max_length=200)),
                ('incumbent_us', models.FloatField(null=True)),
                ('incumbent_ratio', models.FloatField(null=True)),
                ('incumbent_low', models.FloatField(null=True)),
                ('incumbent_high', models.FloatField(null=True)),
                ('times', catalog.fields.ExactJSONField(default=list)),
                ('build_s', models.FloatField(null=True)),
                ('tier', models.CharField(blank=True, max_length=4)),
                ('worker', models.CharField(blank=True, max_length=100)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['state', 'target'], name='evaluations_to_claim')],
                'constraints': [models.UniqueConstraint(fields=('version', 'operator', 'target', 'setting'), name='one_evaluation_per_place')],
            },
        ),
    ]
