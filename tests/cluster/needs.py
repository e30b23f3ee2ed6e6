"""Requirements of tests on this machine: skip without them, or fail in CI."""

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
