from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('operation', '0002_retention_marks'),
    ]

    operations = [
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
    ]
