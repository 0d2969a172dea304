from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('webhooks', '0004_alerts_and_pagerduty'),
    ]

    operations = [
        migrations.AlterField(
            model_name='message',
            name='event_type',
            field=models.CharField(choices=[('exploration.ended', 'Exploration Ended'), ('best.changed', 'Best Changed'), ('implementation.withdrawn', 'Implementation Withdrawn'), ('hit.served', 'Hit Served'), ('workers.silent', 'Workers Silent'), ('route.failing', 'Route Failing'), ('machine.disturbed', 'Machine Disturbed'), ('queue.old', 'Queue Old'), ('hits.falling', 'Hits Falling'), ('best.regressed', 'Best Regressed'), ('failure.new', 'Failure New'), ('credit.low', 'Credit Low'), ('spending.sudden', 'Spending Sudden'), ('alert.acknowledged', 'Alert Acknowledged'), ('alert.resolved', 'Alert Resolved'), ('ledger.charged', 'Ledger Charged'), ('credit.added', 'Credit Added'), ('payment.required', 'Payment Required'), ('endpoint.test', 'Endpoint Test')], max_length=40),
        ),
    ]
