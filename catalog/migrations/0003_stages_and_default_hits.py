from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0002_guards'),
    ]

    operations = [
        migrations.AddField(
            model_name='best',
            name='final',
            field=models.BooleanField(db_default=True, default=True),
        ),
        migrations.AddField(
            model_name='best',
            name='is_default',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='best',
            name='stage',
            field=models.CharField(choices=[('first', 'first result'), ('contest', 'contest ended'), ('tuned', 'tuned')], db_default='first', default='first', max_length=10),
        ),
        migrations.AddField(
            model_name='jobday',
            name='default_hits',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='joboperator',
            name='default_hits',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='lookuptally',
            name='default_hits',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='operatortotal',
            name='default_hits',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='trafficslot',
            name='default_hits',
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='usage',
            name='is_default',
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
