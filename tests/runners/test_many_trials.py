"""Commands on a campaign of very many trials: `cancel` reads none of them, `status` a bounded number."""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from submission_files import FIRST, SMALL, Scripted, submit
from synthetic import Campaign, write_campaign

from ablate.runners.attempts.worker_records import read_cancelled
from ablate.runners.cli.app import execute
from ablate.store.ingest.ingest import ingest
from ablate.store.store import Store

CANCEL = """
import json, sys
seen = []
def note(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        seen.append(arguments[0])
sys.addaudithook(note)
from ablate.runners.cli.app import execute
code = execute(["cancel", "--campaign", sys.argv[1]])
found = [each for each in seen if each.startswith(sys.argv[1])]
print(json.dumps([code, found, "duckdb" in sys.modules]))
"""


def test_cancel_opens_no_database_and_lists_no_trials(tmp_path: Path) -> None:
    ssa = [("SSA", seed) for seed in range(6)]
    campaign = write_campaign(tmp_path / "c", operators=("softmax", "SSA"), seeds=range(6), pending=set(ssa), **SMALL)
    submit(campaign, ssa)
    ingest(campaign.root)
    command = [sys.executable, "-P", "-c", CANCEL, str(campaign.root)]
    said = subprocess.run(command, env={"PATH": "/nowhere"}, capture_output=True, text=True).stdout
    code, seen, database = json.loads(said.splitlines()[-1])
    assert (code, database) == (5, False)  # there is no scheduler to tell
    assert read_cancelled(campaign.layout, FIRST).all
    places = {Path(each).relative_to(campaign.root).parts[0] for each in seen if each != str(campaign.root)}
    assert "submissions" in places
    assert not places & {"trials", "store", "spool", "grids"}


class Opened:
    """Counts the files below `root` that Python opens and the directories that it lists."""

    def __init__(self) -> None:
        self.root: str | None = None
        self.count = 0
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.root and event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(self.root):
            self.count += 1

    @contextmanager
    def below(self, root: Path) -> Iterator[None]:
        self.root, self.count = str(root), 0
        try:
            yield
        finally:
            self.root = None


@pytest.fixture(scope="module")
def opened() -> Opened:
    return Opened()


@pytest.mark.parametrize("known", ["nothing", "plans"])
def test_status_reads_a_bounded_number_of_files_and_says_how_far_it_is_behind(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], known: str
) -> None:
    """Each look at the clock takes a quarter of a second. A campaign of eight times the size is no more work."""
    counts = []
    for factor in (1, 8):
        campaign = write_campaign(tmp_path / f"c{factor}", seeds=range(8 * factor), **SMALL)
        if known == "plans":
            know_plans(campaign)
        monkeypatch.setattr("ablate.runners.backends.slurm.queue.SlurmScheduler", Scripted)
        clock = itertools.count(0, 0.25)
        fake = SimpleNamespace(monotonic=lambda clock=clock: next(clock), time=time.time)
        with monkeypatch.context() as patched:
            for module in ("ingest", "ingest_records", "ingest_shards"):
                patched.setattr(f"ablate.store.ingest.{module}.time", fake)
            with opened.below(campaign.root):
                assert execute(["status", "--campaign", str(campaign.root), "--json"]) == 0
        counts.append(opened.count)
        (warning, *_) = json.loads(capsys.readouterr().out)["warnings"]
        assert f"in {len(campaign.layout.fans())} of {len(campaign.layout.fans())} directories of trials" in warning
        with Store.open(campaign.root) as store:
            assert store.progress("quickstart")["done"].sum() == len(campaign.lines)
    small, large = counts
    assert small < 60
    assert large <= small + 4


def know_plans(campaign: Campaign) -> None:
    """Ingest a campaign of which only the plans are there."""
    hidden = [(path, path.with_name(f"hidden-{path.name}")) for path in (campaign.layout.trials, campaign.layout.spool)]
    for path, away in hidden:
        path.rename(away)
    ingest(campaign.root)
    for path, away in hidden:
        away.rename(path)
