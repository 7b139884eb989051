"""What brokers add to Holdfast: their notifiers."""

from holdfast.core.schemes import BROKER_EXTRAS
from holdfast.extensions import Extension

EXTENSION = Extension(
    notifiers={
        scheme: f"holdfast_brokers.{broker}:{broker}_notifier"
        for scheme, broker in BROKER_EXTRAS.items()
    }
)
