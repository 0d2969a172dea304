"""The database itself lets no version be approved whose evidence does not allow it, and keeps tries, decisions,
inspections and caught sources from being changed.

SQLite makes a table anew when a later migration alters it, and loses its triggers then: such a migration must
end with ``guard``. No trigger on DELETE: what belongs to an organisation goes with it; a caught source is a
row of its own and stays.
"""

from django.db import migrations

SENTENCE = "Evidence is only ever added to."
# Of a caught source its version may become nothing; of a decision its user never.
KEPT = {
    "kernels_kerneltry": "",
    "kernels_kernelinspection": "",
    "kernels_kerneldecision": "",
    "kernels_caughtsource": "OF source_sha256, tokens_sha256, label, detail, caught_at ",
}
UNFIT = "Only a version whose every evaluation ended ok or slower, one at least ok, can be approved."
# `unsupported` is no evidence: the operator cannot be tried there at all. `died` and `noisy` neither.
ALLOWS = """
    NOT EXISTS (SELECT 1 FROM kernels_kernelevaluation e
                 WHERE e.version_id = NEW.id AND e.state = 'done' AND e.status = 'ok')
    OR EXISTS (SELECT 1 FROM kernels_kernelevaluation e
                WHERE e.version_id = NEW.id
                  AND (e.state <> 'done' OR e.status NOT IN ('ok', 'slower', 'unsupported')))
    OR EXISTS (SELECT 1 FROM kernels_kerneltry t
                WHERE t.version_id = NEW.id
                  AND t.status NOT IN ('ok', 'slower', 'noisy', 'unsupported', 'died', ''))
    OR EXISTS (SELECT 1 FROM kernels_caughtsource c
                WHERE c.source_sha256 = NEW.source_sha256
                   OR (c.tokens_sha256 <> '' AND c.tokens_sha256 = NEW.tokens_sha256))
"""
BECOMES = "NEW.state = 'approved' AND OLD.state <> 'approved'"


def guard(apps, schema_editor):
    execute = schema_editor.execute
    if schema_editor.connection.vendor == "sqlite":
        execute(
            "CREATE TRIGGER kernels_only_the_fit BEFORE UPDATE OF state ON kernels_kernelversion "
            f"WHEN {BECOMES} AND ({ALLOWS}) BEGIN SELECT RAISE(ABORT, '{UNFIT}'); END"
        )
        for table, columns in KEPT.items():
            refuse = f"BEGIN SELECT RAISE(ABORT, '{SENTENCE}'); END"
            execute(f"CREATE TRIGGER {table}_kept BEFORE UPDATE {columns}ON {table} {refuse}")
    elif schema_editor.connection.vendor == "postgresql":
        execute(
            "CREATE FUNCTION kernels_only_the_fit() RETURNS trigger LANGUAGE plpgsql AS $$ "
            f"BEGIN IF {BECOMES} AND ({ALLOWS}) THEN "
            f"RAISE EXCEPTION USING MESSAGE = '{UNFIT}', ERRCODE = 'check_violation'; END IF; RETURN NEW; END $$"
        )
        execute(
            "CREATE TRIGGER kernels_only_the_fit BEFORE UPDATE OF state ON kernels_kernelversion "
            "FOR EACH ROW EXECUTE FUNCTION kernels_only_the_fit()"
        )
        execute(
            "CREATE FUNCTION kernels_evidence_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$ "
            f"BEGIN RAISE EXCEPTION USING MESSAGE = '{SENTENCE}', ERRCODE = 'check_violation'; END $$"
        )
        for table, columns in KEPT.items():
            execute(
                f"CREATE TRIGGER {table}_kept BEFORE UPDATE {columns}ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION kernels_evidence_is_kept()"
            )


def release(apps, schema_editor):
    on = "" if schema_editor.connection.vendor == "sqlite" else " ON {}"
    schema_editor.execute("DROP TRIGGER kernels_only_the_fit" + on.format("kernels_kernelversion"))
    for table in KEPT:
        schema_editor.execute(f"DROP TRIGGER {table}_kept" + on.format(table))
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP FUNCTION kernels_only_the_fit()")
        schema_editor.execute("DROP FUNCTION kernels_evidence_is_kept()")


class Migration(migrations.Migration):
    dependencies = [("kernels", "0002_evidence_of_every_try")]
    operations = [migrations.RunPython(guard, release)]
