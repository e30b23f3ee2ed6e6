"""Seconds and bytes of the report of a large grid with long curves: 192 cells of ten seeds, 10,000 points a run.

python benchmarks/report_size.py [--cells 192] [--rows 10000] [--campaign DIRECTORY] [--write FILE]

The file has plotly.js once, which is most of it. A campaign that is there is used again. A report of 6,000 cells has a
target of 20 s: `--cells 6000 --rows 30`.
"""

import os
import tempfile
from pathlib import Path

from big_campaign import SEEDS, write_campaign
from measurement import Results, machine, read_options, report, took

from ablate.dashboards import write_report
from ablate.store.files.layout import Layout
from ablate.store.ingest.ingest import ingest

MOST_BYTES = 10_000_000
TARGET_S = 20.0


def main() -> None:
    options = read_options(__doc__, cells=192, rows=10_000)
    sizes = {"cells": options.cells, "seeds": SEEDS, "rows_per_trial": options.rows}
    results = Results({**machine(), "threads": os.cpu_count(), **sizes}, options.write)
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(options.campaign or Path(folder) / "large")
        if not layout.exists():
            write_campaign(layout, options.cells * SEEDS, options.rows)
        report("ingest", [took(lambda: ingest(layout))], say=results.add)
        out = Path(folder) / "report.html"
        report("report", [took(lambda: write_report(layout.root, out))], TARGET_S, results.add)
        size = out.stat().st_size
        results.add({"name": "report_size", "bytes": size, "target": MOST_BYTES, "met": size <= MOST_BYTES})


if __name__ == "__main__":
    main()
