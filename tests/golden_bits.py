"""Trains small trials with this tree and with its parent commit, and names the version to raise if a bit differs.

`PYTHONPATH=src:tests python tests/golden_bits.py [REVISION]` trains every trial of `golden_trials` in float32 on the
path that is chosen on the CPU. Operators are trained on short and long sequences on every path of the CPU, too, and of
the GPU where there is one; path "triton" is compared only there. The parent is HEAD if the work tree was edited since,
else the commit before. Bits are compared on one machine only: on another one, they differ by rounding.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from golden_trials import ROOT, trials

from ablate import LinearFunctions
from ablate.grid.errors import SpecError
from ablate.store.files.code_versions import differing, of_paths
from ablate.training.trial import Trial
from ablate.variants import gpt2
from ablate.variants.paths.choose import PATHS, devices_of

STEPS = 2
LONG = 80
"""Points of a long sequence, two tokens each: beyond 129 tokens every path has another way to compute."""


def runs() -> Iterator[tuple[str, Trial]]:
    """Yield named trials, on the path that is chosen on a CPU and on each one that computes on this machine."""
    there = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    for name, trial in trials(STEPS):
        yield name, trial.changed(execution=trial.execution.changed(device="cpu"))
        if not name.startswith(("operator", "link")):
            continue
        places = [(path.name, device) for path in PATHS for device in there if device in devices_of(path.name)]  # type: ignore[arg-type]
        for (path, device), points in product(places, (trial.task.points, LONG)):
            task = LinearFunctions(points=points, batch=2, evaluation=trial.task.evaluation)
            model = gpt2(layers=2, heads=2, width=32, max_positions=2 * points)
            execution = trial.execution.changed(path=path, device=device, deterministic=device == "cuda")
            with suppress(SpecError):  # this path cannot compute it
                where = f"{name}, {points} points on {path} on {device}"
                yield where, trial.changed(task=task, model=model, execution=execution)


class Ran(NamedTuple):
    """The values that a tree computes for a trial."""

    sources: dict[str, str]
    path: str
    values: str
    """All recorded values in hexadecimal, or the error."""


def train_with(tree: Path, lines: str) -> dict[str, Ran]:
    """Train trials with the code of `tree`."""
    if not (tree / "src" / "ablate").is_dir():  # else the installed code would be compared with itself
        sys.exit(f"{tree} has no src/ablate; compare with a commit that has it")
    environment = {**os.environ, "PYTHONPATH": f"{tree}/src{os.pathsep}{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "golden_child"]
    done = subprocess.run(command, env=environment, input=lines, text=True, stdout=subprocess.PIPE, check=True)
    return {name: Ran(*rest) for name, *rest in map(json.loads, done.stdout.splitlines())}


def find_unraised(before: Mapping[str, Ran], now: Mapping[str, Ran]) -> tuple[list[str], list[str]]:
    """Return the trials whose bits differ, and the names one of which is to be raised."""
    changed = [name for name in now if before[name].values != now[name].values]
    if not changed:
        return [], []
    used = {name: set(of_paths(ran.sources, ran.path.split("+")) or ()) for name, ran in now.items()}
    equal = set[str]().union(*(used[name] for name in now if name not in changed))
    shared = set.intersection(*(used[name] for name in changed))
    return changed, sorted(shared - equal) or sorted(shared)


def are_comparable(before: Ran, now: Ran) -> bool:
    """Return True if both trees trained the trial, with the same versions."""
    trained = before.values.startswith("{") and now.values.startswith("{")
    return trained and not [*differing(before.sources, now.sources, before.path)]


def main(parent: str) -> int:
    """Compare with `parent`; 1 if a version is to be raised."""
    lines = "".join(json.dumps([name, trial.data()]) + "\n" for name, trial in runs())
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", parent], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "--extract", "--directory", folder], input=archive.stdout, check=True)
        before = train_with(Path(folder), lines)
    now = train_with(ROOT, lines)
    known = {name: each for name, each in now.items() if are_comparable(before[name], each)}
    changed, names = find_unraised(before, known)
    sys.stdout.write(f"{len(known)} of {len(now)} trials compared with {parent}, {len(changed)} differ\n")
    if changed:
        sys.stdout.write(f"raise `version` of one of {', '.join(names)}; for example, {changed[0]!r} differs\n")
    return int(bool(changed) or not known)


def find_parent() -> str:
    """Return HEAD if the work tree was edited since, else the commit before."""
    edited = subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT, check=False).returncode
    return "HEAD" if edited else "HEAD^"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else find_parent()))
