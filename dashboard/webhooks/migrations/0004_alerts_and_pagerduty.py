from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('webhooks', '0003_routes_and_machines'),
    ]

    operations = [
        migrations.AddField(
            model_name='endpoint',
            name='sealed_key',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AlterField(
            model_name='endpoint',
            name='form',
            field=models.CharField(choices=[('standard', 'Standard Webhooks'), ('slack', 'Slack-compatible'), ('pagerduty', 'PagerDuty-compatible')], db_default='standard', default='standard', max_length=10),
        ),
        migrations.AlterField(
            model_name='message',
            name='event_type',
            field=models.CharField(choices=[('exploration.ended', 'Exploration Ended'), ('best.changed', 'Best Changed'), ('implementation.withdrawn', 'Implementation Withdrawn'), ('hit.served', 'Hit Served'), ('workers.silent', 'Workers Silent'), ('route.failing', 'Route Failing'), ('machine.disturbed', 'Machine Disturbed'), ('queue.old', 'Queue Old'), ('hits.falling', 'Hits Falling'), ('best.regressed', 'Best Regressed'), ('failure.new', 'Failure New'), ('credit.low', 'Credit Low'), ('alert.acknowledged', 'Alert Acknowledged'), ('alert.resolved', 'Alert Resolved'), ('ledger.charged', 'Ledger Charged'), ('credit.added', 'Credit Added'), ('payment.required', 'Payment Required'), ('endpoint.test', 'Endpoint Test')], max_length=40),
        ),
    ]
