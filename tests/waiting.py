"""Wait for a condition, not for a time: the limit of pytest ends a test whose condition never holds."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object]) -> None:
    """Return soon after the condition holds."""
    while not condition():
        time.sleep(0.01)
