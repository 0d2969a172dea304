from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Which operators a method won, from the index alone: the list of operators filtered by method."""

    dependencies = [("catalog", "0013_made_in_environment")]

    operations = [
        migrations.AddIndex(
            model_name="best",
            index=models.Index(fields=["method", "rank", "operator", "scope"], name="winners_by_method"),
        )
    ]
