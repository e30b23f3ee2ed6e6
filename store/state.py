"""The state of a trial: the only words for where it is, in files, in SQL, in commands and on pages.

| state      | means                                                                                     |
|------------|-------------------------------------------------------------------------------------------|
| pending    | it was not begun, and nobody will begin it                                                |
| queued     | a worker or a run will take it                                                            |
| running    | a worker trains it                                                                        |
| stalled    | a worker trains it, and it makes no progress                                              |
| stopped    | its worker left it at a checkpoint, and nobody will take it                               |
| lost       | its worker is gone without a word, and nobody will take it                                |
| unknown    | its worker was on a scheduler that does not answer                                        |
| failed     | its latest attempt failed                                                                 |
| done       | an attempt ended well                                                                     |
| unreadable | it is done, and its result cannot be read                                                 |

Files alone tell pending, running, stopped, lost, failed and done, and the database has these. An attempt has no state
but a `status`, how its `end.json` says that it ended: ok, failed or stopped.
"""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a trial is; the table above."""

    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"
    STALLED = "stalled"
    QUEUED = "queued"
    PENDING = "pending"
    STOPPED = "stopped"
    LOST = "lost"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"


COUNTED: Final = tuple(state for state in State if state is not State.UNREADABLE)
"""States of which a trial has one; an unreadable trial is among those that are done."""


ENDED: Final = (State.DONE, State.FAILED)
"""States of trials that no worker takes, unless it is told to train them again."""

UNCLAIMED: Final = (State.PENDING, State.STOPPED, State.LOST)
"""States of trials that have not ended and that nobody will take."""

CLAIMED: Final = (State.QUEUED, State.RUNNING, State.STALLED, State.UNKNOWN)
"""States of trials that somebody trains or will take."""

_RULES: Final = (
    ("ok", State.DONE),
    ("failed", State.FAILED),
    ("live", State.RUNNING),
    ("stopped", State.STOPPED),
    ("begun", State.LOST),
)
"""The first that holds decides.

ok: an attempt ended so. failed: so did the latest that ended, and none after it is at work. live: an attempt works.
stopped: the latest attempt ended so. begun: there is an attempt.
"""

OF_FILES: Final = (*(state for _, state in _RULES), State.PENDING)
"""The states that files alone tell."""

CASE: Final = (
    f"CASE {' '.join(f'''WHEN {fact} THEN '{state}' ''' for fact, state in _RULES)} ELSE '{State.PENDING}' END"
)
"""`derive_state` as SQL, over columns of these names."""


def derive_state(**facts: bool) -> State:
    """Return the state of a trial by what its files say: ok, failed, live, stopped and begun, as in `_RULES`."""
    return next((state for fact, state in _RULES if facts[fact]), State.PENDING)
