from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tuning', '0009_organisations_share'),
    ]

    operations = [
        migrations.AddField(
            model_name='exploration',
            name='expected_first_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
