"""What users need to test their own code and stores against Holdfast; imported by tests only."""

import pytest

# A failing assertion of a shipped class shows its values, as it would in the user's own file.
pytest.register_assert_rewrite("holdfast.testing.conformance")
