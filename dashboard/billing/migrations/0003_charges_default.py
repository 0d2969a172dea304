"""Whether a price rule charges the default itself. The table is made anew on SQLite: its guards with it."""

from importlib import import_module

from django.db import migrations, models

guards = import_module("dashboard.billing.migrations.0002_guards")


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_guards")]
    operations = [
        migrations.RunPython(guards.release, guards.guard),
        migrations.AddField(
            model_name="pricerule",
            name="charges_default",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.RunPython(guards.guard, guards.release),
    ]
