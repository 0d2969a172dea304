"""Rows that recall what web processes remember, written by triggers: whoever changes a best or a key, by
whatever way, has said so when it commits. The one that is there from the beginning tells this database's
history from another's."""

from django.db import migrations, models

# Of these tables a change concerns one thing that is remembered …
OF_ONE = {
    "best": ("catalog_best", "operator", "operator_id", None),
    # … of a key only what it opens: that it was used is noted once a minute.
    "key": (
        "catalog_apikey",
        "key",
        "id",
        "prefix, secret_sha256, scopes, revoked_at, expires_at, addresses, organisation_id",
    ),
}
# … and of these, which seldom change, everything: what answers quote of them is in many.
OF_ALL = {
    "operator": ("catalog_operator", "key"),
    "target": ("catalog_target", "key, capability, description"),
    "setting": ("catalog_setting", "key, description"),
    "artifact": ("catalog_artifact", "sha256, manifest, signature, signer"),
    "signer": ("catalog_signer", "sha256, public_key, retired_at"),
}
MANY = 500
"""Operators changed by one statement; more than that recall everything."""

SQLITE = "INSERT INTO catalog_recall (kind, number, mark, xid) VALUES ('{kind}', {number}, random(), 0)"
POSTGRES_VALUES = "(random() * 9e15)::bigint, pg_current_xact_id()::text::bigint"
POSTGRES_FUNCTIONS = f"""
CREATE FUNCTION recall_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO catalog_recall (kind, number, mark, xid) SELECT 'all', 0, {POSTGRES_VALUES};
    RETURN NULL;
END $$;
CREATE FUNCTION recall_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO catalog_recall (kind, number, mark, xid) SELECT 'key', OLD.id, {POSTGRES_VALUES};
    RETURN NULL;
END $$;
CREATE FUNCTION recall_bests() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE operators bigint[];
BEGIN
    SELECT array_agg(few.operator_id) INTO operators
        FROM (SELECT DISTINCT operator_id FROM changed LIMIT {MANY + 1}) few;
    IF cardinality(operators) > {MANY} THEN
        INSERT INTO catalog_recall (kind, number, mark, xid) SELECT 'all', 0, {POSTGRES_VALUES};
    ELSIF operators IS NOT NULL THEN
        INSERT INTO catalog_recall (kind, number, mark, xid)
            SELECT 'operator', one, {POSTGRES_VALUES} FROM unnest(operators) one;
    END IF;
    RETURN NULL;
END $$;
"""


def _sqlite():
    for name, (table, kind, column, of) in OF_ONE.items():
        events = {"insert": ("INSERT", "NEW"), "update": (f"UPDATE OF {of}" if of else "UPDATE", "OLD")}
        for event, (when, row) in (events | {"delete": ("DELETE", "OLD")}).items():
            said = SQLITE.format(kind=kind, number=f"{row}.{column}")
            yield f"recall_{name}_{event}", f"AFTER {when} ON {table} BEGIN {said}; END"
    for name, (table, of) in OF_ALL.items():
        for event, when in {"update": f"UPDATE OF {of}", "delete": "DELETE"}.items():
            said = SQLITE.format(kind="all", number=0)
            yield f"recall_{name}_{event}", f"AFTER {when} ON {table} BEGIN {said}; END"


def _postgres():
    tables = {"insert": "NEW", "update": "NEW", "delete": "OLD"}
    for event, rows in tables.items():
        yield (
            f"recall_best_{event}",
            f"AFTER {event.upper()} ON catalog_best REFERENCING {rows} TABLE AS changed "
            "FOR EACH STATEMENT EXECUTE FUNCTION recall_bests()",
        )
    table, _, _, of = OF_ONE["key"]
    for event, when in {"update": f"UPDATE OF {of}", "delete": "DELETE"}.items():
        yield f"recall_key_{event}", f"AFTER {when} ON {table} FOR EACH ROW EXECUTE FUNCTION recall_key()"
    for name, (table, of) in OF_ALL.items():
        for event, when in {"update": f"UPDATE OF {of}", "delete": "DELETE"}.items():
            said = "FOR EACH STATEMENT EXECUTE FUNCTION recall_all()"
            yield f"recall_{name}_{event}", f"AFTER {when} ON {table} {said}"


def _table_of(text):
    return text.split(" ON ", 1)[1].split(" ", 1)[0]


def recall(apps, schema_editor):
    vendor = schema_editor.connection.vendor
    if vendor == "postgresql":
        schema_editor.execute(POSTGRES_FUNCTIONS)
        said = f"SELECT 'all', 0, {POSTGRES_VALUES}"
    else:
        said = "VALUES ('all', 0, random(), 0)"
    for name, text in _postgres() if vendor == "postgresql" else _sqlite():
        schema_editor.execute(f"CREATE TRIGGER {name} {text}")
    schema_editor.execute(f"INSERT INTO catalog_recall (kind, number, mark, xid) {said}")


def recall_no_more(apps, schema_editor):
    postgres = schema_editor.connection.vendor == "postgresql"
    for name, text in _postgres() if postgres else _sqlite():
        schema_editor.execute(f"DROP TRIGGER {name}" + (f" ON {_table_of(text)}" if postgres else ""))
    for function in ("recall_all", "recall_key", "recall_bests") if postgres else ():
        schema_editor.execute(f"DROP FUNCTION {function}()")


class Migration(migrations.Migration):
    dependencies = [("catalog", "0018_audit_archivist")]
    operations = [
        migrations.CreateModel(
            name="Recall",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=10)),
                ("number", models.BigIntegerField(default=0)),
                ("mark", models.BigIntegerField(default=0)),
                ("xid", models.BigIntegerField(db_index=True, default=0)),
            ],
        ),
        migrations.RunPython(recall, recall_no_more),
    ]
