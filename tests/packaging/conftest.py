"""Wheels and sdists of this work tree, built once."""

from pathlib import Path

import pytest

from tests.packaging.environment import Distribution, build


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Distribution]:
    """Every package's wheel and sdist, in one folder."""
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def wheel(distributions: dict[str, Distribution]) -> Path:
    """The wheel of the core."""
    return distributions["holdfast-jobs"].wheel


@pytest.fixture(scope="session")
def sdist(distributions: dict[str, Distribution]) -> Path:
    """The sdist of the core."""
    return distributions["holdfast-jobs"].sdist
