import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tuning', '0011_failure_groups'),
    ]

    operations = [
        migrations.AddField(
            model_name='failuregroup',
            name='first',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='tuning.trial'),
        ),
    ]
