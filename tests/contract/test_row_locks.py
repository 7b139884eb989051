"""PostgreSQL locks rows, so what one transaction holds hinders nobody else."""

import pytest

from tests import conformance
from tests.contract.conftest import PAIRS_ON_POSTGRES

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("pair", PAIRS_ON_POSTGRES, indirect=True, ids="-".join),
]


class TestDebounceLocks(conformance.DebounceLocksConformance): ...


class TestLockedReap(conformance.LockedReapConformance): ...


class TestRowLock(conformance.RowLockConformance): ...
