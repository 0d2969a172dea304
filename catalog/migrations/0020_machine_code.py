"""Machine code beside implementations: a table of its own, filled by workers in small steps."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0019_recalls'),
    ]

    operations = [
        migrations.CreateModel(
            name='MachineCode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('artifact_sha256', models.CharField(max_length=64)),
                ('packed', models.BinaryField()),
                ('lines', models.PositiveIntegerField(default=0)),
                ('tool', models.CharField(blank=True, max_length=40)),
                ('why_not', models.CharField(blank=True, max_length=300)),
                ('read_at', models.DateTimeField(auto_now=True)),
                ('implementation', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='machine_code', to='catalog.implementation')),
            ],
        ),
    ]
