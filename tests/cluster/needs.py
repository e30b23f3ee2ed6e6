"""What a test needs of this machine, and what becomes of it where that is missing."""

import os
from collections.abc import Sequence

import pytest
from cluster.cluster import PACKAGES


def need(lacks: Sequence[str]) -> None:
    """Skip the test, and say so, where programs are not installed; in CI (the variable CI is set) that is a failure."""
    if not lacks:
        return
    words = f"no test cluster: {', '.join(lacks)} not installed (apt-get install {PACKAGES})"
    if os.environ.get("CI"):
        pytest.fail(words)
    pytest.skip(words)
