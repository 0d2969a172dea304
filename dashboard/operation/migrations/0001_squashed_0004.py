"""What the first 4 made, at once, for a new database; one that has some of them goes on by them."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('operation', '0001_tables'),
        ('operation', '0002_retention_marks'),
        ('operation', '0003_sizes'),
        ('operation', '0004_releases'),
    ]

    initial = True

    dependencies = [
        ('catalog', '0026_keys_made_with_keys'),
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
        migrations.CreateModel(
            name='RetentionMark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=50, unique=True)),
                ('position', models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='SizeSample',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('name', models.CharField(max_length=100)),
                ('rows', models.BigIntegerField(null=True)),
                ('bytes', models.BigIntegerField()),
                ('disk', models.CharField(blank=True, max_length=300)),
                ('free_bytes', models.BigIntegerField(null=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('at', 'name'), name='one_size_at_a_time')],
            },
        ),
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
