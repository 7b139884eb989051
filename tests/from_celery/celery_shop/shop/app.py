"""The shop's application: broker, settings and the schedule of beat."""

import os

from celery import Celery
from celery.schedules import crontab

app = Celery(
    "shop",
    broker=os.environ.get("SHOP_BROKER"),
    backend=os.environ.get("SHOP_BROKER"),
    include=["shop.tasks"],
)
app.conf.update(
    timezone="Europe/Warsaw",
    task_acks_late=True,
    task_track_started=True,
    worker_prefetch_multiplier=1,
    beat_schedule={
        "nightly report": {
            "task": "shop.tasks.nightly_report",
            "schedule": crontab(hour=2, minute=30),
            "options": {"expires": 3600},
        },
        "count the stock": {"task": "shop.tasks.count_stock", "schedule": 1.0, "args": ("main",)},
    },
)
