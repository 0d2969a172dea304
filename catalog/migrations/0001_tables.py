import catalog.fields
import django.db.models.deletion
import django.db.models.expressions
from django.conf import settings
from django.core.management.base import CommandError
from django.db import migrations, models


def refuse_earlier(apps, schema_editor):
    """Versions up to 7fa76a5 had other migrations, and named what they made the same."""
    connection = schema_editor.connection
    if "catalog_operator" in connection.introspection.table_names():
        raise CommandError(
            "This database was made by a version before the migrations were begun anew. Start with an empty one "
            "(OPATLAS_HOME, DATABASE_URL) and fill it from the old one by `manage.py adopt_home OLD_FOLDER`."
        )


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunPython(refuse_earlier, migrations.RunPython.noop),
        migrations.CreateModel(
            name='Organisation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=200, unique=True)),
                ('host', models.BooleanField(db_default=False, default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name='SignIn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sign_ins', to=settings.AUTH_USER_MODEL)),
                ('session_key', models.CharField(max_length=40, unique=True)),
                ('began_at', models.DateTimeField(auto_now_add=True)),
                ('address', models.CharField(blank=True, max_length=64)),
                ('agent', models.CharField(blank=True, max_length=200)),
            ],
        ),
        migrations.CreateModel(
            name='Operator',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=80, unique=True)),
                ('graph', catalog.fields.ExactJSONField()),
                ('op_type', models.CharField(max_length=100)),
                ('summary', models.CharField(max_length=300)),
                ('dtype', models.CharField(max_length=20)),
                ('flops', models.FloatField(default=0)),
                ('bytes_moved', models.FloatField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'indexes': [models.Index(fields=['op_type', 'dtype'], name='operators_by_type'), models.Index(fields=['summary', 'id'], name='operators_by_name')],
            },
        ),
        migrations.CreateModel(
            name='Target',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=80, unique=True)),
                ('kind', models.CharField(max_length=20)),
                ('arch', models.CharField(max_length=50)),
                ('capability', models.CharField(db_index=True, max_length=80)),
                ('description', catalog.fields.ExactJSONField()),
                ('served_until', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name='Setting',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=80, unique=True)),
                ('threads', models.PositiveIntegerField()),
                ('cache', models.CharField(max_length=10)),
                ('description', catalog.fields.ExactJSONField()),
            ],
        ),
        migrations.CreateModel(
            name='Environment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('versions', catalog.fields.ExactJSONField()),
            ],
        ),
        migrations.CreateModel(
            name='Artifact',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sha256', models.CharField(max_length=64, unique=True)),
                ('kind', models.CharField(max_length=20)),
                ('manifest', catalog.fields.ExactJSONField()),
                ('signature', models.CharField(blank=True, max_length=128)),
                ('signer', models.CharField(blank=True, max_length=64)),
                ('size_bytes', models.BigIntegerField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name='Signer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sha256', models.CharField(max_length=64, unique=True)),
                ('public_key', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('retired_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='StaleHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField(unique=True)),
                ('marks', models.PositiveBigIntegerField(db_default=1, default=1)),
            ],
        ),
        migrations.CreateModel(
            name='TrafficSlot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('grain', models.CharField(choices=[('hour', 'Hour'), ('day', 'Day')], max_length=4)),
                ('start', models.DateTimeField()),
                ('tenant', models.CharField(default='all', max_length=30)),
                ('hits', models.PositiveBigIntegerField(default=0)),
                ('misses', models.PositiveBigIntegerField(default=0)),
                ('hit_calls', models.FloatField(default=0)),
                ('miss_calls', models.FloatField(default=0)),
                ('operators_asked', models.PositiveIntegerField(default=0)),
                ('operators_hit', models.PositiveIntegerField(default=0)),
                ('jobs', models.PositiveIntegerField(default=0)),
                ('saved_us', models.FloatField(default=0)),
                ('reused_hits', models.PositiveBigIntegerField(db_default=0, default=0)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'grain', 'start'), name='one_traffic_row_per_slot')],
            },
        ),
        migrations.CreateModel(
            name='RouteSlot',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('start', models.DateTimeField()),
                ('tenant', models.CharField(default='all', max_length=30)),
                ('method', models.CharField(choices=[('library', 'Library'), ('compiler', 'Compiler'), ('manual', 'Manual')], max_length=20)),
                ('route', models.CharField(max_length=40)),
                ('hits', models.PositiveBigIntegerField(default=0)),
                ('calls', models.FloatField(default=0)),
                ('saved_us', models.FloatField(default=0)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'start', 'route'), name='one_row_per_route_and_day')],
            },
        ),
        migrations.CreateModel(
            name='Rollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=40, unique=True)),
                ('made_at', models.DateTimeField()),
                ('took_s', models.FloatField(default=0)),
                ('facts', catalog.fields.ExactJSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name='JournalSegment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('node', models.CharField(max_length=60)),
                ('segment', models.CharField(max_length=60)),
                ('drained_bytes', models.BigIntegerField(default=0)),
                ('closed', models.BooleanField(default=False)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('node', 'segment'), name='one_row_per_segment')],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='catalog.organisation')),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('operator', 'Operator'), ('approver', 'Approver'), ('billing', 'Billing'), ('admin', 'Admin')], default='viewer', max_length=20)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'organisation'), name='one_role_per_member')],
            },
        ),
        migrations.CreateModel(
            name='Invitation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='catalog.organisation')),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('operator', 'Operator'), ('approver', 'Approver'), ('billing', 'Billing'), ('admin', 'Admin')], default='viewer', max_length=20)),
                ('email', models.EmailField(blank=True, max_length=254)),
                ('nonce', models.CharField(max_length=32, unique=True)),
                ('invited_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('accepted_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_keys', to='catalog.organisation')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='api_keys', to=settings.AUTH_USER_MODEL)),
                ('name', models.CharField(max_length=200)),
                ('prefix', models.CharField(max_length=16, unique=True)),
                ('secret_sha256', models.CharField(max_length=64)),
                ('scopes', models.JSONField(default=list)),
                ('max_queued_misses', models.PositiveIntegerField(default=10000)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='DeclaredEnvironment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.target')),
                ('route', models.CharField(max_length=40)),
                ('environment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.environment')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('target', 'route'), name='one_declared_environment')],
            },
        ),
        migrations.CreateModel(
            name='Implementation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.operator')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.target')),
                ('setting', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.setting')),
                ('scope', models.CharField(default='shared', max_length=30)),
                ('owner', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('route', models.CharField(max_length=40)),
                ('method', models.CharField(choices=[('library', 'Library'), ('compiler', 'Compiler'), ('manual', 'Manual')], max_length=20)),
                ('label', models.CharField(max_length=200)),
                ('candidate', catalog.fields.ExactJSONField()),
                ('candidate_sha256', models.CharField(max_length=64)),
                ('schedule', models.TextField(blank=True)),
                ('source', models.TextField(blank=True)),
                ('artifact', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='implementations', to='catalog.artifact')),
                ('environment', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='implementations', to='catalog.environment')),
                ('build_s', models.FloatField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_reason', models.CharField(blank=True, db_default='', max_length=300)),
                ('failed_at', models.DateTimeField(blank=True, null=True)),
                ('failed_reason', models.CharField(blank=True, db_default='', max_length=300)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('revoked_at__isnull', False)), fields=['revoked_at'], name='revoked_lately'), models.Index(condition=models.Q(('failed_at__isnull', False)), fields=['failed_at'], name='failed_lately'), models.Index(fields=['environment', 'target', '-id'], name='made_in_environment')],
                'constraints': [models.UniqueConstraint(fields=('operator', 'target', 'setting', 'scope', 'route', 'candidate_sha256', 'environment'), name='one_implementation_per_candidate')],
            },
        ),
        migrations.CreateModel(
            name='Job',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='jobs', to='catalog.organisation')),
                ('name', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'name'), name='one_job_per_name')],
            },
        ),
        migrations.CreateModel(
            name='Model',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organisation', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='models', to='catalog.organisation')),
                ('name', models.CharField(max_length=200)),
                ('sha256', models.CharField(max_length=64)),
                ('form', models.CharField(max_length=20)),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.target')),
                ('setting', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.setting')),
                ('calls', models.PositiveIntegerField(default=0)),
                ('unmapped', models.JSONField(default=dict)),
                ('hits_before', models.FloatField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('organisation', 'sha256', 'target', 'setting', 'name'), name='one_model_per_content')],
            },
        ),
        migrations.CreateModel(
            name='OperatorTotal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='totals', to='catalog.operator')),
                ('tenant', models.CharField(default='all', max_length=30)),
                ('hits', models.PositiveBigIntegerField(default=0)),
                ('misses', models.PositiveBigIntegerField(default=0)),
                ('calls', models.FloatField(default=0)),
                ('jobs', models.PositiveIntegerField(default=0)),
                ('saved_us', models.FloatField(default=0)),
                ('last_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['tenant', '-jobs', '-operator'], name='totals_by_jobs'), models.Index(fields=['tenant', '-saved_us', '-operator'], name='totals_by_saved'), models.Index(models.F('tenant'), django.db.models.expressions.CombinedExpression(models.F('hits'), '+', models.F('misses')), models.F('operator'), name='totals_by_asked')],
                'constraints': [models.UniqueConstraint(fields=('operator', 'tenant'), name='one_total_per_operator')],
            },
        ),
        migrations.CreateModel(
            name='Standing',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.target')),
                ('setting', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.setting')),
                ('method', models.CharField(choices=[('library', 'Library'), ('compiler', 'Compiler'), ('manual', 'Manual')], max_length=20)),
                ('route', models.CharField(max_length=40)),
                ('op_type', models.CharField(max_length=100)),
                ('size_class', models.PositiveSmallIntegerField()),
                ('found', models.PositiveIntegerField(default=0)),
                ('won', models.PositiveIntegerField(default=0)),
                ('contested', models.PositiveIntegerField(default=0)),
                ('log_margin', models.FloatField(default=0)),
                ('log_speedup', models.FloatField(default=0)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('target', 'setting', 'route', 'op_type', 'size_class'), name='one_standing_per_kind')],
            },
        ),
        migrations.CreateModel(
            name='LookupTally',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tallies', to='catalog.operator')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('hits', models.PositiveIntegerField(default=0)),
                ('misses', models.PositiveIntegerField(default=0)),
                ('hit_calls', models.FloatField(default=0)),
                ('miss_calls', models.FloatField(default=0)),
                ('saved_us', models.FloatField(db_default=0, default=0)),
            ],
            options={
                'indexes': [models.Index(fields=['operator', 'hour'], name='tallies_of_operator')],
                'constraints': [models.UniqueConstraint(fields=('hour', 'operator', 'organisation'), name='one_tally_per_hour')],
            },
        ),
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(auto_now_add=True, db_index=True)),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('api_key', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='catalog.apikey')),
                ('actor', models.CharField(max_length=200)),
                ('organisation', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='catalog.organisation')),
                ('action', models.CharField(max_length=80)),
                ('subject', models.CharField(blank=True, max_length=300)),
                ('detail', models.JSONField(default=dict)),
                ('request_id', models.CharField(blank=True, max_length=64)),
                ('address', models.CharField(blank=True, max_length=64)),
            ],
            options={
                'verbose_name_plural': 'audit entries',
                'indexes': [models.Index(fields=['organisation', '-at'], name='audit_of_organisation')],
            },
        ),
        migrations.CreateModel(
            name='Measurement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('implementation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='measurements', to='catalog.implementation')),
                ('median_us', models.FloatField()),
                ('spread_us', models.FloatField()),
                ('default_us', models.FloatField()),
                ('ratio_to_default', models.FloatField()),
                ('ratio_low', models.FloatField()),
                ('ratio_high', models.FloatField()),
                ('samples_us', catalog.fields.ExactJSONField(default=list)),
                ('max_error', models.FloatField(null=True)),
                ('tolerance', models.FloatField(null=True)),
                ('prepare_us', models.FloatField(null=True)),
                ('prepare_bytes', models.BigIntegerField(null=True)),
                ('tier', models.CharField(max_length=4)),
                ('purpose', models.CharField(default='contest', max_length=20)),
                ('default_route', models.CharField(blank=True, db_default='', max_length=40)),
                ('default_environment', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.environment')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name='BestChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.operator')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.target')),
                ('setting', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.setting')),
                ('scope', models.CharField(default='shared', max_length=30)),
                ('owner', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('before', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='catalog.implementation')),
                ('after', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='catalog.implementation')),
                ('reason', models.CharField(max_length=300)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='JobOperator',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='operators', to='catalog.job')),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='jobs', to='catalog.operator')),
                ('hits', models.PositiveIntegerField(default=0)),
                ('misses', models.PositiveIntegerField(default=0)),
                ('hit_calls', models.FloatField(db_default=0, default=0)),
                ('miss_calls', models.FloatField(db_default=0, default=0)),
                ('saved_us', models.FloatField(db_default=0, default=0)),
                ('last_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'operator'), name='one_row_per_job_and_operator')],
            },
        ),
        migrations.CreateModel(
            name='JobDay',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='days', to='catalog.job')),
                ('start', models.DateTimeField()),
                ('method', models.CharField(choices=[('library', 'Library'), ('compiler', 'Compiler'), ('manual', 'Manual')], max_length=20)),
                ('hits', models.PositiveBigIntegerField(default=0)),
                ('calls', models.FloatField(default=0)),
                ('default_us', models.FloatField(default=0)),
                ('saved_us', models.FloatField(default=0)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'start', 'method'), name='one_row_per_job_day_and_method')],
            },
        ),
        migrations.CreateModel(
            name='JobPlace',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='places', to='catalog.job')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.target')),
                ('setting', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.setting')),
                ('last_at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('job', 'target', 'setting'), name='one_row_per_job_and_place')],
            },
        ),
        migrations.CreateModel(
            name='ModelOperator',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='operators', to='catalog.model')),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='models', to='catalog.operator')),
                ('calls', models.PositiveIntegerField()),
                ('example', models.CharField(max_length=300)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('model', 'operator'), name='one_row_per_model_operator')],
            },
        ),
        migrations.CreateModel(
            name='Miss',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.operator')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.target')),
                ('setting', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.setting')),
                ('scope', models.CharField(default='shared', max_length=30)),
                ('owner', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('count', models.PositiveIntegerField(default=1)),
                ('calls', models.FloatField(default=1)),
                ('related', models.BooleanField(default=False)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('promoted', 'Promoted'), ('postponed', 'Postponed'), ('discarded', 'Discarded'), ('explored', 'Explored'), ('unsupported', 'Unsupported'), ('failed', 'Failed')], default='waiting', max_length=20)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('api_key', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='misses', to='catalog.apikey')),
                ('job', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='catalog.job')),
                ('first_asked_at', models.DateTimeField(auto_now_add=True)),
                ('last_asked_at', models.DateTimeField(auto_now=True)),
                ('waited_until', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['state', 'related', 'first_asked_at'], name='collect_order'), models.Index(fields=['api_key', 'state'], name='queued_per_key')],
                'constraints': [models.UniqueConstraint(fields=('operator', 'target', 'setting', 'scope'), name='one_miss_per_key')],
            },
        ),
        migrations.CreateModel(
            name='Usage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='usage', to='catalog.organisation')),
                ('job', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='usage', to='catalog.job')),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='usage', to='catalog.operator')),
                ('implementation', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='usage', to='catalog.implementation')),
                ('method', models.CharField(choices=[('library', 'Library'), ('compiler', 'Compiler'), ('manual', 'Manual')], max_length=20)),
                ('route', models.CharField(max_length=40)),
                ('median_us', models.FloatField()),
                ('default_us', models.FloatField()),
                ('calls', models.FloatField(default=1)),
                ('served_at', models.DateTimeField(db_index=True)),
                ('node', models.CharField(max_length=60)),
                ('segment', models.CharField(max_length=60)),
                ('offset', models.BigIntegerField()),
                ('item', models.PositiveIntegerField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('node', 'segment', 'offset', 'item'), name='one_usage_per_journal_item')],
            },
        ),
        migrations.CreateModel(
            name='Best',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('operator', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.operator')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.target')),
                ('setting', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='%(class)s_set', to='catalog.setting')),
                ('scope', models.CharField(default='shared', max_length=30)),
                ('owner', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.organisation')),
                ('route', models.CharField(max_length=40)),
                ('method', models.CharField(choices=[('library', 'Library'), ('compiler', 'Compiler'), ('manual', 'Manual')], max_length=20)),
                ('kind', models.CharField(max_length=20)),
                ('implementation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.implementation')),
                ('measurement', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='catalog.measurement')),
                ('label', models.CharField(max_length=200)),
                ('artifact_sha256', models.CharField(max_length=64)),
                ('needs', models.CharField(blank=True, max_length=500)),
                ('median_us', models.FloatField()),
                ('spread_us', models.FloatField()),
                ('default_us', models.FloatField()),
                ('ratio_to_default', models.FloatField()),
                ('ratio_low', models.FloatField()),
                ('ratio_high', models.FloatField()),
                ('measured_at', models.DateTimeField()),
                ('rank', models.PositiveIntegerField(default=0)),
                ('published_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'indexes': [models.Index(fields=['rank', '-ratio_to_default', '-operator'], name='winners_by_speedup'), models.Index(fields=['rank', 'median_us', '-operator'], name='winners_by_time'), models.Index(fields=['method', 'rank', 'operator', 'scope'], name='winners_by_method'), models.Index(fields=['published_at'], name='bests_by_publishing')],
                'constraints': [models.UniqueConstraint(fields=('operator', 'target', 'setting', 'scope', 'route'), name='one_best_per_route')],
            },
        ),
    ]
