"""A worker of a pretended host that claims trials, as a process: `claiming_worker.py root host seed heartbeat_s`.

A line on stdin is a round. The process tries to claim every trial named there, in its own order. It answers with a line
{trial: attempt} of the claims it got. With "until" it goes on until every trial has a live owner. With "meet", a
directory, it waits after its first claim until that many processes have claimed a trial as "of" says.
"""

import json
import os
import random
import socket
import sys
import time
from pathlib import Path

from ablate.runners.attempts.claims import Claim, claim
from ablate.runners.attempts.leases import Leases
from ablate.store.files.layout import Layout

ABOUT = {"submission": "20260101T000000-abcdef", "worker": 0, "path": None, "device": None, "threads": 1, "code": None}


def main(root: str, host: str, seed: str, heartbeat_s: str) -> None:
    """Serve rounds until stdin closes."""
    socket.gethostname = lambda: host
    layout, order = Layout(Path(root)), random.Random(seed)
    leases = Leases(shared=lambda: None)
    about = {**ABOUT, "heartbeat_s": float(heartbeat_s)}
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        asked = json.loads(line)
        open_, got = list(asked["trials"]), {}
        while open_:
            order.shuffle(open_)
            for trial in open_:
                time.sleep(order.random() * 2e-4)
                found = claim(layout, trial, about, retry=False, leases=leases)
                if isinstance(found, Claim):
                    got[trial] = found.number
                    if len(got) == 1 and asked.get("meet"):
                        wait_for_others(Path(asked["meet"]), asked["of"])
            done = [trial for trial in open_ if not asked["until"] or len(layout.attempts(trial)) == asked["until"]]
            open_ = [trial for trial in open_ if trial not in done]
        print(json.dumps(got), flush=True)  # noqa: T201


def wait_for_others(meeting: Path, processes: int) -> None:
    """Wait until `processes` processes are here, so that a process that starts late still claims a trial."""
    (meeting / str(os.getpid())).touch()
    while len(list(meeting.iterdir())) < processes:
        time.sleep(1e-3)


if __name__ == "__main__":
    main(*sys.argv[1:])
