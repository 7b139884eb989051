"""PostgreSQL locks rows, so what one transaction holds hinders nobody else."""

import pytest

from holdfast.testing import conformance
from tests.contract.conftest import POSTGRES

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("contract", POSTGRES, indirect=True),
]


class TestLockedReap(conformance.LockedReapConformance): ...


class TestRowLock(conformance.RowLockConformance): ...
