"""On PostgreSQL one role may remove audit entries: what has been exported (``catalog.people.archiving``). The
role itself is made by a database administrator, not by the service."""

from django.db import migrations

FUNCTION = """
CREATE OR REPLACE FUNCTION audit_is_only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    {exception}
    RAISE EXCEPTION 'The audit log is only ever added to.';
END $$
"""
ARCHIVISTS = "IF TG_OP = 'DELETE' AND current_user = 'opatlas_archivist' THEN RETURN OLD; END IF;"


def let_the_archivist_remove(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(FUNCTION.format(exception=ARCHIVISTS))


def let_nobody_remove(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(FUNCTION.format(exception=""))


class Migration(migrations.Migration):
    dependencies = [("catalog", "0017_largest_dim")]
    operations = [migrations.RunPython(let_the_archivist_remove, let_nobody_remove)]
