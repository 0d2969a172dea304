from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """What was made in one environment of a target, the latest first: how two environments are compared."""

    dependencies = [("catalog", "0012_operators_by_name")]

    operations = [
        migrations.AddIndex(
            model_name="implementation",
            index=models.Index(fields=["environment", "target", "-id"], name="made_in_environment"),
        )
    ]
