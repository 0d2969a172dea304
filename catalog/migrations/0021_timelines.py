"""The last timeline that a session reported of a plan."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0020_machine_code'),
    ]

    operations = [
        migrations.CreateModel(
            name='PlanTimeline',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('packed', models.BinaryField()),
                ('at', models.DateTimeField(auto_now=True)),
                ('plan', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='timeline', to='catalog.storedplan')),
            ],
        ),
    ]
