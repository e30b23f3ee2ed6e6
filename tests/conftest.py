"""What one test defines no other test sees."""

from collections.abc import Iterator

import pytest
from definitions import forgotten

import variants.proof.examples  # noqa: F401  # all that the package defines is there before the first test


@pytest.fixture(autouse=True)
def _definitions_stay_in_their_test() -> Iterator[None]:
    with forgotten():
        yield
