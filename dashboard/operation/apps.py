from django.apps import AppConfig


class OperationConfig(AppConfig):
    name = "dashboard.operation"
    default_auto_field = "django.db.models.BigAutoField"
