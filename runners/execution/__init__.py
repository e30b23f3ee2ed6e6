"""Machines: where the workers of a run live.

`Inline` trains in this process, `Local` in warm worker processes of this computer.
"""

from runners.execution.inline import Inline
from runners.execution.local import Local
from runners.execution.machine import Machine, Overseer, Queue, RowSource

__all__ = ["Inline", "Local", "Machine", "Overseer", "Queue", "RowSource"]
