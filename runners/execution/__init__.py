"""Machines that run workers.

`Inline` trains in this process, `Local` in warm worker processes on this computer.
"""

from runners.execution.local import Local
from runners.execution.machine import Inline, Machine, Overseer, Queue, RowSource

__all__ = ["Inline", "Local", "Machine", "Overseer", "Queue", "RowSource"]
