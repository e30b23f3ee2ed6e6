"""Machines: where the workers of a run live.

`Inline` trains in this process, `Local` in warm worker processes of this computer.
"""

from runners.machines.inline import Inline
from runners.machines.local import Local
from runners.machines.machine import Machine, Overseer, Queue, Rows

__all__ = ["Inline", "Local", "Machine", "Overseer", "Queue", "Rows"]
