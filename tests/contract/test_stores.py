"""Every store in every colour keeps the contract."""

import pytest

from holdfast.testing.conformance import LifecycleConformance

pytestmark = pytest.mark.asyncio(loop_scope="session")


class TestLifecycle(LifecycleConformance): ...
