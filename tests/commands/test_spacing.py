"""How far apart redriven jobs become due."""

from __future__ import annotations

import math

import pytest

from holdfast.commands.jobs import spacing_us
from holdfast.core.errors import InvalidOption


def test_a_rate_says_how_far_apart_jobs_become_due() -> None:
    assert [spacing_us(rate) for rate in (None, 0.001, 0.5, 50, 1_000_000)] == [
        0,
        1_000_000_000,
        2_000_000,
        20_000,
        1,
    ]


@pytest.mark.parametrize("rate", [0, -1, 1e-30, math.inf, math.nan])
def test_a_rate_that_means_nothing_is_refused_with_those_that_do(rate: float) -> None:
    with pytest.raises(InvalidOption, match="out of range") as refused:
        spacing_us(rate)
    assert refused.value.help == "use 0.001 to 1000000"
