from django.apps import AppConfig


class KernelsConfig(AppConfig):
    name = "tuning.kernels"
    label = "kernels"
    default_auto_field = "django.db.models.BigAutoField"
