from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class CatalogConfig(AppConfig):
    name = "catalog"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from catalog.versions import refuse_newer_database

        pre_migrate.connect(refuse_newer_database, sender=self)
