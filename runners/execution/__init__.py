"""Machines that run workers.

`Inline` trains in this process, `Local` in warm worker processes on this computer.
"""

from ablate.runners.execution.machine import Inline, Machine, Overseer, Queue, RowSource
from ablate.runners.execution.pool import Local

__all__ = ["Inline", "Local", "Machine", "Overseer", "Queue", "RowSource"]
