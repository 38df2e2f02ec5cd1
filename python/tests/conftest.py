"""Fixtures of all tests."""

import zlib

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _random_numbers_of_a_test(request):
    """Gives each test the same random numbers, whichever tests ran before it in this process."""
    rng = getattr(request.module, "RNG", None)
    if rng is not None:
        rng.bit_generator.state = np.random.default_rng(zlib.crc32(request.node.name.encode())).bit_generator.state
