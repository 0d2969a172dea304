from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "dashboard.billing"
    default_auto_field = "django.db.models.BigAutoField"
