"""Seconds that `ablate status` and the functions under it take over a campaign of very many trials.

python benchmarks/many_trials.py [--trials 100000] [--repeat 3] [--campaign DIRECTORY]

Every tenth trial has failed and the last hundredth has not begun. A campaign that is there is used again.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from big_campaign import write_attempt, write_plan
from measurement import machine, read_options, report, tell, took

from store.files.change_tracker import SETTLED_S
from store.files.layout import Layout
from store.ingest.ingest import ingest
from store.store import Store


def main() -> None:
    """Measure and print."""
    options = read_options(__doc__, trials=100_000, repeat=3)
    tell({**machine(), "trials": options.trials})
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(options.campaign or Path(folder) / "campaign")
        if not layout.exists():
            write(layout, options.trials)
        report("first_ingest", [took(lambda: ingest(layout))])
        time.sleep(SETTLED_S)  # until then directories that were just written are read again
        report("every_trial", [took(lambda: ingest(layout)) for _ in range(options.repeat)])
        report("what_changed", [took(lambda: ingest(layout, thorough=False)) for _ in range(options.repeat)])
        with Store.open(layout.root, refresh=False) as store:
            for name, ask in {"progress": lambda: store.progress("large"), "warnings": store.warnings}.items():
                report(name, [took(ask) for _ in range(options.repeat)], target_s=1)
        command = [str(Path(sys.executable).with_name("ablate")), "status", "--campaign", str(layout.root)]
        runs = [
            took(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)) for _ in range(options.repeat)
        ]
        report("ablate_status", runs, target_s=1)


def write(layout: Layout, trials: int) -> None:
    """The plan, and the attempts of all but the last hundredth of its trials."""
    keys = write_plan(layout, trials)
    for number, key in enumerate(keys[: len(keys) - len(keys) // 100]):
        write_attempt(layout, key, 1, "ok" if number % 10 else "failed")


if __name__ == "__main__":
    main()
