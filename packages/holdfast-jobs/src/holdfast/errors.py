"""Every error Holdfast raises, at its public address: `from holdfast.errors import LeaseLost`."""

from holdfast.core.errors import *  # noqa: F403
from holdfast.core.errors import __all__ as __all__
