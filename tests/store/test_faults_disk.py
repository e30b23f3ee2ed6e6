"""A disk that is full at any moment of a shard's, an ingest's, a snapshot's and a rebuild's life: a small tmpfs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PRELUDE = """
import json, subprocess, sys
from pathlib import Path

root = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24M", "tmpfs", root], check=True)
sys.path.insert(0, sys.argv[2])
import os
from ablate.grid.errors import EnvironmentProblem
from ablate.store.files.atomic import read_json, write_json
from ablate.store.ingest.ingest import ingest
from ablate.store.files.layout import Layout
from ablate.store.ingest.rebuild import rebuild
from ablate.store.files.shards import ShardBuffer, verify_shard
from ablate.store.store import Store
from synthetic import write_campaign

ballast = root / "ballast"

def leave(free):
    ballast.unlink(missing_ok=True)
    about = os.statvfs(root)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, about.f_bavail * about.f_bsize - free))

def tried(action):
    try:
        action()
    except EnvironmentProblem as problem:
        return str(problem)

said = {}
"""

SHARDS = """
layout = Layout(root / "c")
buffer = ShardBuffer(layout, submission="20260102T030405-0a1b2c", worker=0)
buffer.flush()
layout.spool.mkdir(parents=True)
write_json(layout.root / "start.json", {"version": "old" * 2000})
found = []
for free in range(0, 49152, 4096):
    for step in range(999):
        buffer.add("metric", ("ab" * 16, 1, free + step, f"loss {step * 7919 % 9973}", step / 7, 0.1))
    leave(free)
    problems = [tried(buffer.flush), tried(lambda: write_json(layout.root / "start.json", {"version": "new" * 2000}))]
    whole = sum(verify_shard(path).rows for path in layout.shards())
    version = read_json(layout.root / "start.json")["version"][:3]
    left = [path.name for path in layout.root.rglob("*.tmp.*")]
    found.append([free, problems, whole, version, left, buffer.durable])
    if problems[1] is None:
        write_json(layout.root / "start.json", {"version": "old" * 2000})
ballast.unlink()
buffer.flush()
said = {"found": found, "rows": sum(verify_shard(path).rows for path in layout.shards())}
print(json.dumps(said))
"""

STORE = """
points = {"sigma_f": (1, 5), "sigma_x": (1,)}
campaign = write_campaign(root / "c", steps=300, operators=("softmax", "SSA"), seeds=range(2), **points)
layout = campaign.layout
late = layout.shards()[-1]
late.rename(root / late.name)
ingest(layout)

def content():
    with Store.open(layout.root, refresh=False) as store:
        return store.content_hash()

old = content()
(root / late.name).rename(late)
size = layout.live.stat().st_size
found = {"ingest": [], "rebuild": []}
for name, action in (("ingest", ingest), ("rebuild", rebuild)):
    for part in (0, 0.05, 0.3, 0.9, 1.1, 1.9):
        leave(round(part * size))
        problem = tried(lambda: action(layout))
        left = [path.name for path in layout.store.iterdir() if ".tmp." in path.name]
        found[name].append([problem, content(), left if name == "rebuild" else []])
ballast.unlink()
ingest(layout)
new = content()
rebuild(layout)
print(json.dumps({"found": found, "old": old, "new": new, "rebuilt": content()}))
"""


def on_a_small_disk(place: Path, code: str) -> dict[str, Any]:
    """Run `code` with `place` as a private tmpfs of 24 MiB, and return the JSON that it prints."""
    alone = ["unshare", "--mount", "--map-root-user"]
    tried = subprocess.run([*alone, "mount", "-t", "tmpfs", "tmpfs", place], check=False, capture_output=True)
    if tried.returncode:
        lacking = "this machine lets nobody mount a small file system"
        pytest.fail(lacking) if os.environ.get("CI") else pytest.skip(lacking)
    command = [*alone, sys.executable, "-c", PRELUDE + code, str(place), str(Path(__file__).parents[1])]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_disk_that_is_full_at_any_moment_loses_and_doubles_no_row_and_tears_no_file(tmp_path: Path) -> None:
    said = on_a_small_disk(tmp_path, SHARDS)
    refused = 0
    for round_, (_, problems, whole, version, left, durable) in enumerate(said["found"], start=1):
        assert left == []
        assert whole == 999 * round_ if durable else whole % 999 == 0
        assert durable == (problems[0] is None)
        assert version == ("new" if problems[1] is None else "old")
        assert all("No space left on device; free some space" in text for text in problems if text)
        refused += not durable
    assert 0 < refused < len(said["found"])
    assert said["rows"] == 999 * len(said["found"])


def test_on_a_full_disk_readers_keep_a_whole_snapshot_and_nothing_is_left_in_the_way(tmp_path: Path) -> None:
    said = on_a_small_disk(tmp_path, STORE)
    assert said["rebuilt"] == said["new"] != said["old"]
    for name in ("ingest", "rebuild"):
        problems = [problem for problem, _, _ in said["found"][name]]
        assert problems[0] is not None, name
        assert all("free some space" in problem for problem in problems if problem), problems
        for problem, content, left in said["found"][name]:
            assert content in (said["old"], said["new"])
            assert content == said["new"] or problem
            assert left == []
