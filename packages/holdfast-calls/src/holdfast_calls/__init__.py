"""Calls to and from an application: cycles that call an API, and requests that wait for a result."""

from typing import TYPE_CHECKING

from holdfast.extensions import lazy_names

if TYPE_CHECKING:
    from holdfast_calls.request_wait import Failed, Found, Look, Ready, Waited, wait_or_accept
    from holdfast_calls.service_client import ServiceClient
    from holdfast_calls.service_guard import ServiceCall, ServiceGuard, service_call
    from holdfast_calls.wait_parameter import WaitMs

__all__ = [
    "Failed",
    "Found",
    "Look",
    "Ready",
    "ServiceCall",
    "ServiceClient",
    "ServiceGuard",
    "WaitMs",
    "Waited",
    "service_call",
    "wait_or_accept",
]

__getattr__ = lazy_names(
    __name__,
    {
        "request_wait": ("Failed", "Found", "Look", "Ready", "Waited", "wait_or_accept"),
        "service_client": ("ServiceClient",),
        "service_guard": ("ServiceCall", "ServiceGuard", "service_call"),
        "wait_parameter": ("WaitMs",),
    },
)
