"""What users need to test their own code and stores against Holdfast; imported by tests only."""

import sys

if "pytest" in sys.modules:
    import pytest

    # A failing assertion of a shipped class shows its values, as it would in the user's own file.
    pytest.register_assert_rewrite("holdfast.testing.conformance")
