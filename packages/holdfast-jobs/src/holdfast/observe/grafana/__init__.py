"""A Grafana dashboard and alert rules for Prometheus, as files to be imported there."""
