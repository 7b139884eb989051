"""The tests; folders mirror those of packages/holdfast-jobs/src/holdfast, and the other packages."""

import sys

if "pytest" in sys.modules:
    import pytest

    # A failing assertion of a shared class shows its values, as it would in the file that inherits it.
    pytest.register_assert_rewrite("tests.conformance")
