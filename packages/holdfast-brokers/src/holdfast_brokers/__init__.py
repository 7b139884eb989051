"""Hints between processes over Redis or NATS, and what every notifier must hold."""

import sys

if "pytest" in sys.modules:
    import pytest

    # A failing assertion of a shipped class shows its values, as it would in the user's own file.
    pytest.register_assert_rewrite("holdfast_brokers.conformance")
