"""Invitations and sign-ins; the audit log's rows are kept from changing by the database itself."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


# Only the references may change: to nothing, when an account, a key or an organisation is deleted. SQLite has
# no trigger on DELETE, because emptying a database (tests) is a DELETE there; the model refuses it.
KEPT = "id, at, actor, action, subject, detail, request_id, address"


def guard(apps, schema_editor):
    if schema_editor.connection.vendor == "sqlite":
        schema_editor.execute(
            f"CREATE TRIGGER audit_is_only_added_to BEFORE UPDATE OF {KEPT} ON catalog_auditentry "
            "BEGIN SELECT RAISE(ABORT, 'The audit log is only ever added to.'); END"
        )
    elif schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(
            "CREATE FUNCTION audit_is_only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$ "
            "BEGIN RAISE EXCEPTION 'The audit log is only ever added to.'; END $$"
        )
        schema_editor.execute(
            f"CREATE TRIGGER audit_is_never_changed BEFORE UPDATE OF {KEPT} ON catalog_auditentry "
            "FOR EACH ROW EXECUTE FUNCTION audit_is_only_added_to()"
        )
        schema_editor.execute(
            "CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON catalog_auditentry "
            "FOR EACH ROW EXECUTE FUNCTION audit_is_only_added_to()"
        )


def release(apps, schema_editor):
    if schema_editor.connection.vendor == "sqlite":
        schema_editor.execute("DROP TRIGGER audit_is_only_added_to")
    elif schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER audit_is_never_deleted ON catalog_auditentry")
        schema_editor.execute("DROP TRIGGER audit_is_never_changed ON catalog_auditentry")
        schema_editor.execute("DROP FUNCTION audit_is_only_added_to()")


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0005_host_and_stale_hours'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Invitation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('operator', 'Operator'), ('approver', 'Approver'), ('billing', 'Billing'), ('admin', 'Admin')], default='viewer', max_length=20)),
                ('email', models.EmailField(blank=True, max_length=254)),
                ('nonce', models.CharField(max_length=32, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField()),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('withdrawn_at', models.DateTimeField(blank=True, null=True)),
                ('accepted_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('invited_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('organisation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='catalog.organisation')),
            ],
        ),
        migrations.CreateModel(
            name='SignIn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('session_key', models.CharField(max_length=40, unique=True)),
                ('began_at', models.DateTimeField(auto_now_add=True)),
                ('address', models.CharField(blank=True, max_length=64)),
                ('agent', models.CharField(blank=True, max_length=200)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sign_ins', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.RunPython(guard, release),
    ]
