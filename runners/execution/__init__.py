"""Machines that run workers.

`Inline` trains in this process, `Local` in warm worker processes on this computer.
"""

from runners.execution.inline import Inline
from runners.execution.local import Local
from runners.execution.machine import Machine, Overseer, Queue, RowSource

__all__ = ["Inline", "Local", "Machine", "Overseer", "Queue", "RowSource"]
