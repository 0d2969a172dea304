from django.db import migrations, models


def told_of_this_too(apps, schema_editor):
    """Who wants to know that credit ends wants to know why."""
    subscriptions = apps.get_model("notifications", "Subscription").objects
    subscriptions.filter(subject="account", on_spend=True).update(on_spend_sudden=True)


class Migration(migrations.Migration):

    dependencies = [
        ('notifications', '0004_alerts'),
    ]

    operations = [
        migrations.AddField(
            model_name='subscription',
            name='on_spend_sudden',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AlterField(
            model_name='alert',
            name='rule',
            field=models.CharField(choices=[('silent', "A target's workers fell silent"), ('failing', 'A route fails on every trial'), ('disturbed', 'A machine is too disturbed to measure on'), ('queue_old', 'First results wait too long'), ('hits_falling', 'The hit rate falls'), ('regressed', 'A best became slower'), ('new_failure', 'Something fails for a new cause'), ('spend', 'Credit ends soon'), ('spend_sudden', 'Spending rises suddenly')], max_length=20),
        ),
        migrations.AlterField(
            model_name='notification',
            name='happening',
            field=models.CharField(choices=[('hit', 'A hit was served'), ('explored', 'An exploration ended'), ('best_changed', 'The best changed'), ('withdrawn', 'An implementation was withdrawn'), ('silent', "A target's workers fell silent"), ('failing', 'A route fails on every trial'), ('disturbed', 'A machine is too disturbed to measure on'), ('queue_old', 'First results wait too long'), ('hits_falling', 'The hit rate falls'), ('regressed', 'A best became slower'), ('new_failure', 'Something fails for a new cause'), ('spend', 'Credit ends soon'), ('spend_sudden', 'Spending rises suddenly'), ('test', 'A test message')], max_length=20),
        ),
        migrations.RunPython(told_of_this_too, migrations.RunPython.noop),
    ]
