"""Context that travels: tenant, user and locale from where a job is started to its handler; see docs/do/context.md."""

from holdfast.extensions import lazy_names

__all__ = ["TravelContext", "add_context", "only"]

__getattr__ = lazy_names(
    __name__, {"travel": ["TravelContext", "add_context"], "confinement": ["only"]}
)
