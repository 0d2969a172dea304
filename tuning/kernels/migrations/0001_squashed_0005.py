"""What the first 5 made, at once, for a new database; one that has some of them goes on by them."""

from importlib import import_module

import catalog.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

evidence_guards = import_module("tuning.kernels.migrations.0003_evidence_guards")


class Migration(migrations.Migration):

    replaces = [
        ('kernels', '0001_tables'),
        ('kernels', '0002_evidence_of_every_try'),
        ('kernels', '0003_evidence_guards'),
        ('kernels', '0004_device_code'),
        ('kernels', '0005_made_by_number'),
    ]

    initial = True

    dependencies = [
        ('catalog', '0026_keys_made_with_keys'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Kernel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80)),
                ('description', models.CharField(blank=True, max_length=500)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='kernels', to='catalog.organisation')),
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
                ('number', models.PositiveIntegerField()),
                ('language', models.CharField(choices=[('c', 'C'), ('c++', 'C++'), ('cuda', 'CUDA C++')], max_length=5)),
                ('source', models.TextField()),
                ('source_sha256', models.CharField(max_length=64)),
                ('pattern', catalog.fields.ExactJSONField()),
                ('flags', catalog.fields.ExactJSONField(default=list)),
                ('author', models.CharField(max_length=200)),
                ('licence', models.CharField(max_length=60)),
                ('state', models.CharField(choices=[('submitted', 'Submitted'), ('building', 'Building'), ('failed', 'Failed'), ('noisy', 'Noisy'), ('awaiting', 'Awaiting'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('revoked', 'Revoked'), ('suspended', 'Suspended'), ('superseded', 'Superseded')], default='submitted', max_length=20)),
                ('state_reason', models.CharField(blank=True, max_length=500)),
                ('explorations_seen', models.BigIntegerField(default=0)),
                ('submitted_at', models.DateTimeField(auto_now_add=True)),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('approved_at', models.DateTimeField(blank=True, null=True)),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
                ('tokens_sha256', models.CharField(blank=True, max_length=64)),
                ('launch', catalog.fields.ExactJSONField(blank=True, null=True)),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('example', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='catalog.operator')),
                ('kernel', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='kernels.kernel')),
                ('submitted_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [models.Index(fields=['state'], name='kernel_versions_by_state'), models.Index(fields=['source_sha256'], name='kernel_versions_by_source'), models.Index(fields=['tokens_sha256'], name='kernel_versions_by_tokens')],
                'constraints': [models.UniqueConstraint(fields=('kernel', 'number'), name='one_kernel_version_per_number'), models.CheckConstraint(condition=models.Q(models.Q(('state', 'approved'), _negated=True), models.Q(('decided_by__isnull', False), models.Q(('decided_by', models.F('submitted_by')), _negated=True)), _connector='OR'), name='approved_by_another_user'), models.UniqueConstraint(condition=models.Q(('state__in', ('submitted', 'building', 'failed', 'noisy', 'awaiting', 'approved'))), fields=('kernel',), name='one_live_version_per_kernel')],
            },
        ),
        migrations.CreateModel(
            name='KernelEvaluation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
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
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.operator')),
                ('setting', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.setting')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.target')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='evaluations', to='kernels.kernelversion')),
            ],
            options={
                'indexes': [models.Index(fields=['state', 'target'], name='evaluations_to_claim')],
                'constraints': [models.UniqueConstraint(fields=('version', 'operator', 'target', 'setting'), name='one_evaluation_per_place')],
            },
        ),
        migrations.CreateModel(
            name='KernelTry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('detail', models.TextField(blank=True)),
                ('median_us', models.FloatField(null=True)),
                ('ratio_to_default', models.FloatField(null=True)),
                ('ratio_low', models.FloatField(null=True)),
                ('ratio_high', models.FloatField(null=True)),
                ('max_error', models.FloatField(null=True)),
                ('tolerance', models.FloatField(null=True)),
                ('build_s', models.FloatField(null=True)),
                ('tier', models.CharField(blank=True, max_length=4)),
                ('log_tail', models.TextField(blank=True)),
                ('worker', models.CharField(blank=True, max_length=100)),
                ('number', models.PositiveSmallIntegerField()),
                ('fence', models.PositiveBigIntegerField()),
                ('status', models.CharField(max_length=20)),
                ('default_us', models.FloatField(null=True)),
                ('incumbent_ratio', models.FloatField(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(auto_now_add=True)),
                ('evaluation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tried', to='kernels.kernelevaluation')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tries', to='kernels.kernelversion')),
            ],
            options={
                'ordering': ['pk'],
                'constraints': [models.UniqueConstraint(fields=('evaluation', 'number'), name='one_try_per_number'), models.UniqueConstraint(fields=('evaluation', 'fence'), name='one_try_per_claim')],
            },
        ),
        migrations.CreateModel(
            name='KernelInspection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('observed', catalog.fields.ExactJSONField(default=dict)),
                ('risks', catalog.fields.ExactJSONField(default=list)),
                ('code', catalog.fields.ExactJSONField(default=dict)),
                ('assembly', models.TextField(blank=True)),
                ('provenance', catalog.fields.ExactJSONField(default=dict)),
                ('files', catalog.fields.ExactJSONField(default=dict)),
                ('worker', models.CharField(blank=True, max_length=100)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('evaluation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='inspections', to='kernels.kernelevaluation')),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='inspections', to='kernels.kernelversion')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='KernelDecision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('step', models.CharField(choices=[('submitted', 'Submitted'), ('building', 'Building'), ('failed', 'Failed'), ('noisy', 'Noisy'), ('awaiting', 'Awaiting'), ('approved', 'Approved'), ('rejected', 'Rejected'), ('revoked', 'Revoked'), ('suspended', 'Suspended'), ('superseded', 'Superseded'), ('noted', 'Noted')], max_length=20)),
                ('who', models.CharField(max_length=150)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('looked_at', catalog.fields.ExactJSONField(default=dict)),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='decisions', to='kernels.kernelversion')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.CreateModel(
            name='CaughtSource',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('source_sha256', models.CharField(db_index=True, max_length=64)),
                ('tokens_sha256', models.CharField(blank=True, db_index=True, max_length=64)),
                ('label', models.CharField(max_length=300)),
                ('where', models.CharField(max_length=300)),
                ('detail', models.CharField(max_length=2000)),
                ('worker', models.CharField(blank=True, max_length=100)),
                ('caught_at', models.DateTimeField(auto_now_add=True)),
                ('version', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='catches', to='kernels.kernelversion')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.RunPython(evidence_guards.guard, evidence_guards.release),
    ]
