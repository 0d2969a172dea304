from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='ChoreRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100, unique=True)),
                ('runs', models.PositiveBigIntegerField(default=0)),
                ('failures', models.PositiveBigIntegerField(default=0)),
                ('last_run_at', models.DateTimeField()),
                ('last_success_at', models.DateTimeField(null=True)),
                ('last_took_s', models.FloatField(default=0)),
                ('last_error', models.CharField(blank=True, max_length=300)),
            ],
        ),
    ]
