from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

METHODS = [("library", "Library"), ("compiler", "Compiler"), ("manual", "Manual")]


class Migration(migrations.Migration):
    dependencies = [("tuning", "0004_exploration_lists")]

    operations = [
        migrations.CreateModel(
            name="RouteEffort",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.CharField(blank=True, max_length=50)),
                ("method", models.CharField(choices=METHODS, max_length=20)),
                ("route", models.CharField(blank=True, max_length=40)),
                ("found", models.PositiveIntegerField(default=0)),
                ("explorations", models.PositiveIntegerField(default=0)),
                ("trials", models.PositiveIntegerField(default=0)),
                ("verified", models.PositiveIntegerField(default=0)),
                ("first_result_s", models.FloatField(null=True)),
                ("best_s", models.FloatField(null=True)),
                ("effort_s", models.FloatField(null=True)),
                ("build_s", models.FloatField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("place", "method", "route"), name="one_effort_per_route_and_place"
                    )
                ]
            },
        ),
        migrations.CreateModel(
            name="FailureReason",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("place", models.CharField(blank=True, max_length=50)),
                ("method", models.CharField(choices=METHODS, max_length=20)),
                ("route", models.CharField(max_length=40)),
                ("status", models.CharField(max_length=20)),
                ("reason", models.CharField(blank=True, max_length=200)),
                ("count", models.PositiveIntegerField()),
                (
                    "example",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="tuning.trial"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("place", "route", "status", "reason"), name="one_row_per_failure_reason"
                    )
                ]
            },
        ),
    ]
