"""The database itself keeps the ledger and the price rules from being changed or deleted.

Of a price rule's version only its end may be written, once. SQLite makes a table anew when a later migration
alters it, and loses its triggers then: such a migration must end with ``guard``.
"""

from django.db import migrations

SENTENCES = {
    "billing_ledgerentry": "The ledger is only ever added to.",
    "billing_pricerule": "Price rules are never edited: add a version.",
}


def guard(apps, schema_editor):
    rule = apps.get_model("billing", "PriceRule")
    kept = ", ".join(
        schema_editor.quote_name(field.column) for field in rule._meta.concrete_fields if field.name != "until_at"
    )
    if schema_editor.connection.vendor == "sqlite":
        for table, sentence in SENTENCES.items():
            refuse = f"BEGIN SELECT RAISE(ABORT, '{sentence}'); END"
            columns = "" if table == "billing_ledgerentry" else f"OF {kept} "
            schema_editor.execute(f"CREATE TRIGGER {table}_kept BEFORE UPDATE {columns}ON {table} {refuse}")
            schema_editor.execute(f"CREATE TRIGGER {table}_stays BEFORE DELETE ON {table} {refuse}")
        schema_editor.execute(
            "CREATE TRIGGER billing_pricerule_ends_once BEFORE UPDATE OF until_at ON billing_pricerule "
            "WHEN OLD.until_at IS NOT NULL AND OLD.until_at IS NOT NEW.until_at "
            "BEGIN SELECT RAISE(ABORT, 'A price rule ends once.'); END"
        )
    elif schema_editor.connection.vendor == "postgresql":
        for table, sentence in SENTENCES.items():
            schema_editor.execute(
                f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ "
                f"BEGIN RAISE EXCEPTION '{sentence}'; END $$"
            )
            columns = "" if table == "billing_ledgerentry" else f"OF {kept} "
            run = f"FOR EACH ROW EXECUTE FUNCTION {table}_refuse()"
            schema_editor.execute(f"CREATE TRIGGER {table}_kept BEFORE UPDATE {columns}ON {table} {run}")
            schema_editor.execute(f"CREATE TRIGGER {table}_stays BEFORE DELETE ON {table} {run}")
        schema_editor.execute(
            "CREATE TRIGGER billing_pricerule_ends_once BEFORE UPDATE OF until_at ON billing_pricerule "
            "FOR EACH ROW WHEN (OLD.until_at IS NOT NULL AND OLD.until_at IS DISTINCT FROM NEW.until_at) "
            "EXECUTE FUNCTION billing_pricerule_refuse()"
        )


def release(apps, schema_editor):
    on = "" if schema_editor.connection.vendor == "sqlite" else " ON {}"
    schema_editor.execute("DROP TRIGGER billing_pricerule_ends_once" + on.format("billing_pricerule"))
    for table in SENTENCES:
        for name in (f"{table}_kept", f"{table}_stays"):
            schema_editor.execute(f"DROP TRIGGER {name}" + on.format(table))
        if schema_editor.connection.vendor == "postgresql":
            schema_editor.execute(f"DROP FUNCTION {table}_refuse()")


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_tables")]
    operations = [migrations.RunPython(guard, release)]
