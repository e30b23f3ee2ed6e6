"""Claim that moved or reworded code computes the same numbers as the code of an earlier release.

`PYTHONPATH=. python tests/code_aliases.py OLD_TREE [OLD=NEW...]` trains `trials()` with both and compares every bit.
If all are equal, it writes `store/files/code_aliases.json` and the sources that the old tree records for these trials,
`tests/golden/sources.json`. Modules that moved are those of the present file, and `OLD=NEW`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import runners as r
from grid.errors import SpecError
from grid.spec import Added, Spec
from runners.optimisers.optimiser import Optimiser
from runners.optimisers.schedules import Schedule
from variants import Backbone, babyberta, gpt2, llama2, softmax
from variants.laws.examples import examples

ROOT = Path(__file__).parent.parent
ALIASES = ROOT / "store" / "files" / "code_aliases.json"
SOURCES = Path(__file__).parent / "golden" / "sources.json"


def trials() -> Iterator[tuple[str, Any]]:
    """Yield named small trials that together reach every operator, choice, task, probe, optimiser and schedule."""
    task = r.LinearFunctions(
        points=5, batch=4, evaluation=r.ShiftGrid(sigma_x=(1,), sigma_f=(1, 3), functions=2, sequences=2, points=5)
    )
    model = gpt2(layers=2, heads=2, width=32, max_positions=32)
    base = r.Trial(task=task, model=model, operator=softmax(), training=r.Training(steps=2))
    changes = [
        *((f"operator {each.label}", {"operator": each}) for each in examples()),
        *((f"training {each.key}", {"training": each}) for each in trainings()),
        *((f"task {each.key}", {"task": each, "model": reader}) for each, reader in tasks()),
        *((f"probe {kind}", {"probing": r.Probing(probes=(each(),))}) for kind, each in r.Probe.members().items()),
    ]
    for name, change in changes:
        with suppress(SpecError):  # it does not fit so small a model, or needs tokens
            yield name, base.changed(**change)


def trainings() -> Iterator[r.Training]:
    """Yield every optimiser with every schedule."""
    optimisers = (r.AdamW(), r.Muon(), r.UncorrectedAdamW())
    schedules = (r.Constant(), r.Cosine(warmup=1), r.Linear(warmup=1), r.WSD(warmup=1, decay=0.3))
    assert {type(each) for each in optimisers} == {*Optimiser.members().values()}
    assert {type(each) for each in schedules} == {*Schedule.members().values()}
    for optimiser in optimisers:
        for schedule in schedules:
            yield r.Training(steps=3, optimiser=optimiser, schedule=schedule, clip=1.0)


def tasks() -> Iterator[tuple[r.Task, Backbone]]:
    """Yield every task with a model that can learn it; tasks on other models and other packages are left out."""
    decoder = llama2(layers=2, heads=2, width=8, feedforward_width=16).changed(initialisation="gpt2")
    few = r.AskedLengths(lengths=(24,), sequences=2)
    yield r.AssociativeRecall(batch=2, context=24, pairs=3, keys=9, values=9, evaluation=few), decoder
    yield r.Induction(batch=2, context=24, symbols=20, evaluation=few), decoder
    yield r.SelectiveCopy(batch=2, context=24, evaluation=few), decoder
    yield r.Needle(batch=2, context=24, keys=9, values=9, depths=(0, 1), evaluation=few), decoder
    yield r.Quantifiers(batch=2, points=6, evaluation=r.LengthGrid(lengths=(6,), sigma=(1,), sequences=2)), decoder
    yield (
        r.Grammar(batch=2, context=24, nouns=8, verbs=8, names=8, validation_windows=2, agreement_pairs=2, topics=2),
        decoder,
    )
    text = str(ROOT / "tests" / "golden" / "text.txt")
    for tokenizer in (r.Bytes(), r.BytePairs(vocabulary=300)):
        yield r.Text(source=text, batch=2, context=16, validation_windows=2, tokenizer=tokenizer), decoder
    encoder = babyberta(layers=2, heads=2, width=8, feedforward_width=16, max_positions=128)
    encoder = encoder.changed(initialisation="gpt2", token_types=0)  # as of release 0.1.0
    yield r.MaskedText(source=text, batch=2, context=128, validation_sentences=2), encoder


CHILD = """
import hashlib, json, struct, sys, logging
import torch
torch.set_num_threads(1)
from runners import Trial
from runners.provenance.code import Codes
from runners.training import train

class Recorder:
    def __init__(self):
        self.seen = hashlib.blake2b(digest_size=16)
    def __getattr__(self, name):
        def record(*arguments, **named):
            if name in ("stop_requested", "checkpoint_due"):
                return False
            if name == "restore":
                return None
            if name in ("metrics", "evaluation", "items", "probe", "artefact"):
                if name == "metrics":
                    step, values = arguments
                    kept = {k: v for k, v in values.items() if not k.endswith(("_s", "_second"))}
                    arguments = (step, kept)
                self.seen.update(repr((name, arguments, sorted(named.items()))).encode())
        return record

codes = Codes()
for line in sys.stdin:
    name, data = json.loads(line)
    trial = Trial.model_validate(data)
    recorder = Recorder()
    try:
        train(trial, recorder)
        bits = recorder.seen.hexdigest()
    except Exception as error:
        bits = f"{type(error).__name__}: {error}"
    print(json.dumps([name, trial.key, codes.sources(trial), bits]), flush=True)
"""


def run(tree: Path, lines: str) -> dict[str, list[Any]]:
    """Return for each trial its key, sources and the hash of all that it recorded, with the code of `tree`."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD], env=environment, input=lines, text=True, stdout=subprocess.PIPE, check=True
    )
    return {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}


def read_moves(more: Sequence[str]) -> dict[str, set[str]]:
    """Return the new names of each old module name."""
    moves: dict[str, set[str]] = {}
    for old, _, new, _ in json.loads(ALIASES.read_text(encoding="utf-8")):
        moves.setdefault(old, set()).add(new)
    for move in more:
        old, new = move.split("=")
        moves.setdefault(old, set()).add(new)
    return moves


def rows(old: Mapping[str, str], new: Mapping[str, str], moves: Mapping[str, set[str]]) -> set[tuple[str, ...]]:
    """Return (old name, old hash, new name, new hash) for every source of one trial that differs."""
    found = set()
    for name, value in old.items():
        for target in moves.get(name, {name}):
            if target in new and (name, value) != (target, new[target]):
                found.add((name, value, target, new[target]))
    return found


NEW_KINDS = {"decay_times", "sink"}
"""Choices that release 0.1.0 lacks, or computes with other last bits. Their old results count as other code."""


def as_before(spec: Spec) -> dict[str, Any] | None:
    """Return the data of a spec without fields added since release 0.1.0; None if that release cannot express it."""
    data, values = spec.data(), spec.__dict__
    if data.get("kind") in NEW_KINDS:
        return None
    for name, field in type(spec).model_fields.items():
        if any(isinstance(mark, Added) for mark in field.metadata):
            if values[name] != field.default:
                return None
            del data[name]
        elif isinstance(values[name], Spec):
            data[name] = as_before(values[name])
            if data[name] is None:
                return None
        elif isinstance(values[name], tuple) and any(isinstance(each, Spec) for each in values[name]):
            data[name] = [as_before(each) for each in values[name]]
            if None in data[name]:
                return None
    return data


def main(old_tree: Path, moves: Mapping[str, set[str]]) -> int:
    """Compare, report, write; 1 if a number differs."""
    found = {name: as_before(trial) for name, trial in trials()}
    lines = "".join(json.dumps([name, data]) + "\n" for name, data in found.items() if data is not None)
    before, now = run(old_tree, lines), run(ROOT, lines)
    differ = [name for name in before if before[name][2] != now[name][2] or before[name][0] != now[name][0]]
    failed = [name for name in before if ":" in before[name][2]]
    sys.stdout.write(f"{len(before)} trials; {len(differ)} differ: {differ[:20]}; {len(failed)} fail: {failed[:20]}\n")
    if differ:
        return 1
    aliases = sorted(set().union(*(rows(before[name][1], now[name][1], moves) for name in before)))
    ALIASES.write_text("[\n" + ",\n".join(json.dumps(row) for row in aliases) + "\n]\n", encoding="utf-8")
    kept: dict[str, Any] = {}
    covered: set[tuple[str, str]] = set()
    for name, trial in map(json.loads, lines.splitlines()):
        if not covered.issuperset(before[name][1].items()):
            covered.update(before[name][1].items())
            kept[name] = {"spec": trial, "sources": before[name][1]}
    recorded = json.dumps(kept, separators=(",", ":")).replace(str(ROOT), "/nowhere")
    SOURCES.write_text(recorded + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(aliases)} aliases, {len(kept)} recorded trials\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), read_moves(sys.argv[2:])))
