"""An experiment that leaves processes behind: one of its own, and one of a session and parent that are gone."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

from ablate import Experiment, Grid, Measure, Run

_SLEEP = "import time; time.sleep(600)"
_APART = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {_SLEEP!r}], start_new_session=True, \
stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"


class Leaving(Experiment):
    """Starts two processes and writes their numbers to the file `pids`."""

    kind: Literal["tests_leaving"] = "tests_leaving"
    pids: str = ""

    def train(self, run: Run) -> None:
        """Leave them."""
        child = subprocess.Popen([sys.executable, "-c", _SLEEP])
        orphan = subprocess.run([sys.executable, "-c", _APART], check=True, capture_output=True, text=True).stdout
        with Path(self.pids).open("a", encoding="utf-8") as file:
            file.write(f"{child.pid} {orphan}")
        run.evaluate("loss", 1.0)


def leaving_grid(pids: str) -> Grid:
    """Two seeds."""
    return Grid(name="leaving", base=Leaving(pids=pids), seeds=range(2), measure=Measure(name="loss"))
