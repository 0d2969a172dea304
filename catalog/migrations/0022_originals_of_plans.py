"""Whose simpler form a plan is of, so that it is found from the model's page."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0021_timelines'),
    ]

    operations = [
        migrations.AddField(
            model_name='storedplan',
            name='original',
            field=models.CharField(blank=True, db_default='', default='', max_length=80),
        ),
    ]
