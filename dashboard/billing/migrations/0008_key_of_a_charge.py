from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0007_what_statements_need'),
    ]

    operations = [
        # Null, so that no row of a large ledger is written again.
        migrations.AddField(
            model_name='ledgerentry',
            name='key_prefix',
            field=models.CharField(blank=True, max_length=16, null=True),
        ),
    ]
