"""The wheel and the sdist of this work tree, built once."""

from pathlib import Path

import pytest

from tests.packaging.environment import build


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def wheel(distributions: tuple[Path, Path]) -> Path:
    """The wheel."""
    return distributions[0]


@pytest.fixture(scope="session")
def sdist(distributions: tuple[Path, Path]) -> Path:
    """The sdist."""
    return distributions[1]
