"""OpenTelemetry: spans of sends, attempts and cycles, and metrics."""

from holdfast_otel.telemetry import OtelObserver, use_opentelemetry

__all__ = ["OtelObserver", "use_opentelemetry"]
