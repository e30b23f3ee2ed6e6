"""Seconds, bytes and memory of the dashboard over a campaign of 1,000 runs with 10,000 points each, in a real browser.

python benchmarks/dashboard.py [--trials 1000] [--rows 10000] [--repeat 3] [--campaign DIRECTORY]

A time is from the request of an address until its figures are drawn, with a warm cache of the browser. It includes the
database, the server, the transfer and the drawing. A payload is what the server sent for the page itself, without
scripts that stay in the cache. A campaign that is there is used again.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from big_campaign import write_campaign
from measurement import machine, read_options, report, tell, took
from playwright.sync_api import Page, Response, sync_playwright

from ablate.store.files.layout import Layout
from ablate.store.ingest.ingest import ingest

PAGES = {
    "overview": ("overview", 2.0),
    "curves_grouped": ("curves", 1.5),
    "curves_of_single_trials": ("curves?band=seeds", None),
    "runs": ("runs", None),
    "compare": ("compare", None),
    "factors": ("factors", None),
}
DRAWN = """() => document.querySelector('#page h1')
  && [...document.querySelectorAll('.plot')].every((each) => each.querySelector('.main-svg'))
  && [...document.querySelectorAll('.ag-root-wrapper')].every((each) => each.querySelector('[role=row]'))"""
MOST_BYTES = 1_000_000
MOST_MEMORY = 1 << 30


def main() -> None:
    options = read_options(__doc__, trials=1000, rows=10_000, repeat=3)
    tell({**machine(), "trials": options.trials, "rows_per_trial": options.rows})
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(options.campaign or Path(folder) / "large")
        if not layout.exists():
            write_campaign(layout, options.trials, options.rows)
        report("ingest", [took(lambda: ingest(layout))])
        with served(layout.root) as (process, address), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            where = f"{address}{layout.root.name}"
            open_page(page, f"{where}/overview")  # the browser's cache is cold, and so is the server
            for name, (path, target) in PAGES.items():
                sent: list[int] = []
                counting = count_into(sent)
                page.on("response", counting)
                runs = [took(partial(open_page, page, f"{where}/{path}")) for _ in range(options.repeat)]
                page.remove_listener("response", counting)
                report(name, runs, target)
                payload = sum(sent) // options.repeat
                tell({"name": f"{name}_payload", "bytes": payload, "most": MOST_BYTES, "met": payload <= MOST_BYTES})
            memory = peak_memory(process.pid)
            tell({"name": "server_peak_memory", "bytes": memory, "most": MOST_MEMORY, "met": memory <= MOST_MEMORY})
            browser.close()


@contextmanager
def served(root: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`ablate dash` over a campaign, and the address it answers at."""
    command = [str(Path(sys.executable).with_name("ablate")), "dash", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.terminate()


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_function(DRAWN, timeout=60_000)


def count_into(sent: list[int]) -> Callable[[Response], None]:
    """Listens to the answers of the app itself."""

    def counting(response: Response) -> None:
        if "_dash-update-component" in response.url:
            sent.append(int(response.headers.get("content-length", 0)))  # none: nothing has changed

    return counting


def peak_memory(pid: int) -> int:
    """Most bytes that a process has had in memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
