from django.apps import AppConfig


class TuningConfig(AppConfig):
    name = "tuning"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from catalog.signals import misses_recorded, stage_awaited
        from tuning.doorbell.bell import ring_for_misses
        from tuning.queue.steering import hurry

        misses_recorded.connect(ring_for_misses, dispatch_uid="tuning.doorbell.bell")
        stage_awaited.connect(hurry, dispatch_uid="tuning.queue.steering")
