"""OpenTelemetry: its metrics and spans."""
