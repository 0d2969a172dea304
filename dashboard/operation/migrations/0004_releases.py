import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0019_recalls'),
        ('operation', '0003_sizes'),
    ]

    operations = [
        migrations.CreateModel(
            name='Release',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('host', models.CharField(blank=True, max_length=200)),
                ('versions', models.JSONField(default=dict)),
                ('said', models.CharField(blank=True, max_length=300)),
                ('target', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='catalog.target')),
            ],
            options={
                'indexes': [models.Index(fields=['at'], name='releases_by_time')],
            },
        ),
    ]
