"""The audit log's rows are kept from changing by the database itself. On PostgreSQL, an index that finds words
inside of operators' summaries."""

from django.db import DatabaseError, migrations, transaction

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


def index_words(apps, schema_editor):
    if schema_editor.connection.vendor != "postgresql":
        return
    try:
        with transaction.atomic():
            schema_editor.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
            # As Django writes `icontains`.
            schema_editor.execute(
                "CREATE INDEX operators_by_words ON catalog_operator "
                "USING gin (UPPER(summary::text) gin_trgm_ops)"
            )
    except DatabaseError:
        # Not allowed, or not installed: searches read every summary then, which only takes longer.
        return


def forget_words(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP INDEX IF EXISTS operators_by_words")


class Migration(migrations.Migration):
    dependencies = [("catalog", "0001_tables")]
    operations = [migrations.RunPython(guard, release), migrations.RunPython(index_words, forget_words)]
