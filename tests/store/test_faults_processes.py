"""Readers, ingesters and rebuilds beside one another, and ingesters that are killed at any moment."""

import json
import subprocess
from collections.abc import Callable

from synthetic import Campaign

from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

Process = Callable[..., subprocess.Popen[str]]

IN_PHASES = """
import shutil, sys
from pathlib import Path
import ablate.store.ingest.ingest, ablate.store.ingest.ingest_shards, ablate.store.ingest.ingest_records
import ablate.store.ingest.rebuild, ablate.store.ingest.database_snapshot

def stops(owner, name):
    plain = getattr(owner, name)

    def around(*arguments, **named):
        print("before", name, flush=True)
        sys.stdin.readline()
        found = plain(*arguments, **named)
        print("after", name, flush=True)
        sys.stdin.readline()
        return found

    setattr(owner, name, around)

for owner, names in (
    (ablate.store.ingest.ingest_records.RecordIngest, ["run"]),
    (ablate.store.ingest.ingest_shards.ShardIngest, ["run", "_summarise"]),
    (ablate.store.ingest.database_snapshot.shutil, ["copyfile"]),
    (Path, ["rename"]),
):
    for name in names:
        stops(owner, name)
getattr(getattr(ablate.store.ingest, sys.argv[2]), sys.argv[2])(Path(sys.argv[1]))
print("done", flush=True)
"""


def content(campaign: Campaign) -> str:
    with Store.open(campaign.root, refresh=False) as store:
        return store.content_hash()


def deliver(layout: Layout, sequence: int) -> None:
    buffer = ShardBuffer(layout, submission="20270101T000000-aaaaaa", worker=sequence)
    buffer.add("metric", ("ab" * 16, 1, sequence, "loss", 0.5, 0.1))
    buffer.flush()


def test_in_every_phase_of_an_ingest_and_a_rebuild_a_reader_finds_what_was_or_what_is(
    campaign: Campaign, process: Process
) -> None:
    ingest(campaign.root)
    for number, name in enumerate(("ingest", "rebuild")):
        seen, states = [campaign.layout.snapshot.read_bytes()], [content(campaign)]
        deliver(campaign.layout, number)
        child = process(IN_PHASES, campaign.root, name)
        assert child.stdout is not None
        assert child.stdin is not None
        phases: list[str] = []
        while (said := child.stdout.readline().strip()) != "done":
            assert said, child.stderr
            phases.append(said)
            if (snapshot := campaign.layout.snapshot.read_bytes()) != seen[-1]:
                seen.append(snapshot)
                states.append(content(campaign))
            if said == "before _summarise":
                with Store.open(campaign.root) as store:
                    assert store.stale == "another process is ingesting; its next snapshot has the newest files"
            child.stdin.write("\n")
            child.stdin.flush()
        assert {"before run", "after _summarise", "after copyfile", "before rename", "after rename"} <= set(phases)
        assert states[-1] == content(campaign)
        assert len(states) == 2  # the old state, then the new one


BUSY = """
import sys
from pathlib import Path
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.rebuild import rebuild

print("ready", flush=True)
sys.stdin.readline()
for _ in range(2):
    {"ingest": ingest, "rebuild": rebuild}[sys.argv[2]](Path(sys.argv[1]))
"""


def test_ingesters_and_a_rebuild_at_once_count_every_row_once(campaign: Campaign, process: Process) -> None:
    several = [process(BUSY, campaign.root, name) for name in ("ingest", "rebuild")]
    for child in several:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in several:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for sequence in range(20):
        deliver(campaign.layout, sequence)
        if sequence % 10 == 0:
            ingest(campaign.root)
    assert [child.wait() for child in several] == [0, 0]
    ingest(campaign.root)
    together = content(campaign)
    with Store.open(campaign.root, refresh=False) as store:
        found = store.sql("SELECT count(*), count(DISTINCT step) FROM metric WHERE trial = $key", {"key": "ab" * 16})
    assert found.row(0) == (20, 20)
    rebuild(campaign.root)
    assert content(campaign) == together


KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
import ablate.store.ingest.ingest_shards
from ablate.store.ingest.ingest import ingest
from ablate.store.files.layout import Layout
from ablate.store.ingest.rebuild import rebuild
from ablate.store.files.shards import ShardBuffer

ablate.store.ingest.ingest_shards.BATCH_ROWS = 2
root, chance, killed = Path(sys.argv[1]), random.Random(int(sys.argv[2])), 0
for sequence in range(14):
    buffer = ShardBuffer(Layout(root), submission="20270101T000000-aaaaaa", worker=sequence)
    buffer.add("metric", ("ab" * 16, 1, sequence, "loss", 0.5, 0.1))
    buffer.flush()
    child = os.fork()
    if not child:
        (rebuild if sequence % 4 == 3 else ingest)(root)
        os._exit(0)
    time.sleep(chance.uniform(0, 0.4))
    os.kill(child, signal.SIGKILL)
    killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
print(json.dumps(killed))
"""


def test_an_ingester_that_is_killed_at_random_moments_loses_and_doubles_nothing(
    campaign: Campaign, process: Process
) -> None:
    child = process(KILLED, campaign.root, 7)
    out, problems = child.communicate()
    assert child.returncode == 0, problems
    assert json.loads(out) > 0
    ingest(campaign.root)
    found = content(campaign)
    with Store.open(campaign.root, refresh=False) as store:
        rows = store.sql("SELECT count(*), count(DISTINCT step) FROM metric WHERE trial = $key", {"key": "ab" * 16})
    assert rows.row(0) == (14, 14)
    rebuild(campaign.root)
    assert content(campaign) == found
