"""Small trials that together use every class of the package, and their numbers in float64.

`tests/golden/numbers.json` holds the numbers and the versions that computed them. `test_golden_numbers.py` trains the
trials again. `PYTHONPATH=src:tests python tests/golden_trials.py` writes new versions and new trials into the file, and
changes no number whose version is there.
"""

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from golden_child import Recorder
from golden_unusual import GROWN, UNUSUAL_POSITIONS, backbones, grown_operators, unusual

import ablate as r
import ablate.training.loop.train
from ablate.grid.errors import SpecError
from ablate.runners.provenance.code import Codes, specs
from ablate.store.files.code_versions import of_paths
from ablate.training.loop import cost
from ablate.training.loop.train import train
from ablate.training.optimisers.optimiser import Optimiser
from ablate.training.optimisers.schedules import Schedule
from ablate.training.trial import build_model
from ablate.variants import (
    T5,
    Alibi,
    Backbone,
    Bucket,
    Learned,
    NoPositions,
    Number,
    Operator,
    PerHead,
    Placement,
    Positions,
    Prefix,
    Rotary,
    Scale,
    Sinusoidal,
    Transformer,
    Yarn,
    babyberta,
    gpt2,
    llama2,
    principled,
    softmax,
    ssa,
)
from ablate.variants.laws.examples import examples
from ablate.variants.links import LINKS, Link

STEPS = 20
ROOT = Path(__file__).parent.parent
FILE = Path(__file__).parent / "golden" / "numbers.json"
TEXT = str(ROOT / "tests" / "golden" / "text.txt")


def trials(steps: int = STEPS) -> Iterator[tuple[str, Any]]:
    """Yield named small trials that together reach every class of the package whose numbers a trial has."""
    task = r.LinearFunctions(
        points=5, batch=4, evaluation=r.ShiftGrid(sigma_x=(1,), sigma_f=(1, 3), functions=2, sequences=2, points=5)
    )
    model = gpt2(layers=2, heads=2, width=32, max_positions=32)
    training = r.Training(steps=steps)
    # at a rate of 0.01 training amplifies rounding to 1e-6 (score "square"), at 0.005 to 1e-10
    grown = {"training": training.changed(optimiser=r.AdamW(lr=0.005))}
    base = r.Trial(task=task, model=model, operator=softmax(), training=training, probing=r.Probing(probes=()))
    # gates and a ground state, for probes of them
    gated = principled("query").changed(output_gate=PerHead())
    decoder = llama2(layers=2, heads=2, width=8, feedforward_width=16).changed(initialisation="gpt2")
    text = {"task": r.Text(source=TEXT, batch=2, context=16, validation_windows=2), "model": decoder}
    *_, (masked, encoder) = tasks(decoder)
    encoder = encoder.changed(initialisation="pytorch")  # with weights of 0.02, positions hardly act on the loss
    windows = text["task"].changed(prefix=8)
    members = {kind: each for kind, each in r.Probe.members().items() if is_ours(each)}
    probes = {kind: r.Probing(probes=(each(),)) for kind, each in members.items()}
    quantifiers = r.Quantifiers(batch=2, points=6, evaluation=r.LengthGrid(lengths=(6,), sigma=(1,), sequences=2))
    longer = r.LengthExtrapolation(lengths=(16, 24), count=2, bucket=8, last=8)
    changes = [
        *((f"operator {each.label}", {"operator": each}) for each in examples()),
        *((f"grown {each.label}", {"operator": each, **grown}) for each in grown_operators()),
        *((f"link {link}", {"operator": linked(link)}) for link in LINKS),
        *((f"grown link {link} {init}", {"operator": linked(link, init), **grown}) for link, init in GROWN),
        *((f"training {each.key}", {"training": each}) for each in trainings(steps)),
        *((f"task {each.key}", {"task": each, "model": reader}) for each, reader in tasks(decoder)),
        *((f"variant {name}", {"model": decoder, **change}) for name, change in unusual(text["task"])),
        *((f"backbone {name}", {"model": model.changed(**fields), **grown}) for name, fields in backbones()),
        *((f"probe {kind}", {"probing": each}) for kind, each in probes.items()),
        *((f"probe {kind} of gates", {"probing": each, "operator": gated}) for kind, each in probes.items()),
        *((f"probe {kind} of text", {"probing": each, **text}) for kind, each in probes.items()),
        ("token classes", {**text, "probing": r.Probing(probes=(r.TokenClasses(by="bytes"),))}),
        ("prefix", {**text, "task": windows, "operator": Operator(visible=Prefix(length=8))}),
        *((f"positions {each.label}", {"model": model.changed(positions=each)}) for each in schemes()),
        *(
            (f"grown positions {each.label}", {**grown, "model": model.changed(positions=each)})
            for each in UNUSUAL_POSITIONS
        ),
        *(
            (f"encoder positions {each.label}", {**grown, "task": masked, "model": encoder.changed(positions=each)})
            for each in UNUSUAL_POSITIONS
        ),
        ("placement", {"operator": ssa(), "placement": Placement(share=0.5)}),
        ("boundary values", {"evaluations": (r.BoundaryValues(points=4, contexts=2),)}),
        ("deviant inputs", {"evaluations": (r.DeviantInputs(points=5, functions=2, sequences=2, sigma=(1, 10)),)}),
        ("large value", {"task": quantifiers, "evaluations": (r.LargeValue(numbers=6, sequences=2),)}),
        ("length extrapolation", {**text, "evaluations": (longer,)}),
    ]
    for name, change in changes:
        with suppress(SpecError):  # it does not fit so small a model, or needs tokens
            trial = base.changed(**change)
            if all(is_ours(type(each)) for each in specs(trial)):
                yield name, trial


def schemes() -> tuple[Positions, ...]:
    found = Alibi(), Bucket(), Learned(count=8), NoPositions(), Rotary(), Sinusoidal(), T5(), Yarn(factor=4, original=8)
    assert {each.label for each in found} >= {kind for kind, each in Positions.members().items() if is_ours(each)}
    return found


def is_ours(cls: type) -> bool:
    """Return True for a class of the package; other tests define choices of their own."""
    return cls.__module__.startswith("ablate.")


def linked(link: Link, init: float | None = None) -> Operator:
    """Build an operator whose scale goes through a link."""
    if init is None:
        init = {"at_least_one": 1.5, "unit": 0.5, "clipped": 0.5}.get(link, 1.0)
    return Operator(rescale=Scale(factor=Number(init=init, per=("layer", "head"), link=link)))


def trainings(steps: int) -> Iterator[r.Training]:
    """Yield every optimiser with every schedule."""
    optimisers = (r.AdamW(), r.Muon(), r.UncorrectedAdamW())
    schedules = (r.Constant(), r.Cosine(warmup=1), r.Linear(warmup=1), r.WSD(warmup=1, decay=0.3))
    assert {type(each) for each in optimisers} == {each for each in Optimiser.members().values() if is_ours(each)}
    assert {type(each) for each in schedules} == {each for each in Schedule.members().values() if is_ours(each)}
    for optimiser in optimisers:
        for schedule in schedules:
            yield r.Training(steps=steps, optimiser=optimiser, schedule=schedule, clip=1.0)
    warmup = min(3, steps // 2)
    betas, falls = {"betas": (0.8, 0.9), "eps": 0.01, "weight_decay": 1.0, "lr": 0.01}, {"decay": 0.5, "floor": 0.2}
    for optimiser, schedule in (
        (r.AdamW(**betas), r.WSD(warmup=warmup, shape="cosine", **falls)),
        (r.UncorrectedAdamW(**betas), r.WSD(warmup=warmup, shape="1-sqrt", **falls)),
        (r.Muon(**betas, momentum=0.8, rest_lr=0.02, scale="spectral", rounds=3), r.Linear(warmup=warmup, floor=0.2)),
        (r.Muon(**betas, momentum=0.8, nesterov=False), r.Cosine(warmup=warmup, floor=0.2)),
        (r.AdamW(**betas), r.WSD(warmup=warmup, **falls)),
    ):
        yield r.Training(steps=steps, optimiser=optimiser, schedule=schedule, evaluate_every=8)


def tasks(decoder: Backbone) -> Iterator[tuple[r.Task, Backbone]]:
    """Yield every task with a model that can learn it; tasks on other models and other packages are left out."""
    few = r.AskedLengths(lengths=(24,), sequences=2)
    yield r.AssociativeRecall(batch=2, context=24, pairs=3, keys=9, values=9, evaluation=few), decoder
    yield r.MultiQueryRecall(batch=2, context=24, pairs=3, symbols=18, evaluation=few), decoder
    yield r.Induction(batch=2, context=24, symbols=20, evaluation=few), decoder
    yield r.SelectiveCopy(batch=2, context=24, evaluation=few), decoder
    yield r.Needle(batch=2, context=24, keys=9, values=9, depths=(0, 1), evaluation=few), decoder
    yield r.Quantifiers(batch=2, points=6, evaluation=r.LengthGrid(lengths=(6,), sigma=(1,), sequences=2)), decoder
    yield (
        r.Grammar(batch=2, context=24, nouns=8, verbs=8, names=8, validation_windows=2, agreement_pairs=2, topics=2),
        decoder,
    )
    for tokenizer in (r.Bytes(), r.BytePairs(vocabulary=300)):
        yield r.Text(source=TEXT, batch=2, context=16, validation_windows=2, tokenizer=tokenizer), decoder
    encoder = babyberta(layers=2, heads=2, width=8, feedforward_width=16, max_positions=128)
    encoder = encoder.changed(initialisation="gpt2", token_types=0)  # as of release 0.1.0
    yield r.MaskedText(source=TEXT, batch=2, context=128, validation_sentences=2), encoder


def measure(trial: r.Trial) -> dict[str, float]:
    """Train in float64 on path "reference"; return for each recorded name the mean of its latest finite values."""
    recorder = Recorder()
    with in_double(), patch.object(cost, "flops", lambda *_: None):  # which took a fifth of the time
        train(trial.changed(execution=trial.execution.changed(path="reference", device="cpu")), recorder)
    means = {}
    for name, (_, values) in sorted(recorder.latest.items()):
        finite = [value for value in values if math.isfinite(value)]
        means[name] = float(f"{math.fsum(finite) / len(finite) if finite else 0:.10g}")
    return means


@contextmanager
def in_double() -> Iterator[None]:
    """Build and train models in float64, on the same data."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    _clear_caches()
    try:
        with patch.object(ablate.training.loop.train, "build_model", _build):
            yield
    finally:
        torch.set_default_dtype(before)
        _clear_caches()


def _clear_caches() -> None:
    """Forget cached data and masks: they are of one dtype."""
    for each in _find_caches(len(sys.modules)):
        each.cache_clear()


@lru_cache(1)
def _find_caches(_modules: int) -> list[Any]:
    rooms = ("ablate.training.tasks", "ablate.training.evaluations", "ablate.training.probes", "ablate.variants.")
    modules = [module for name, module in [*sys.modules.items()] if name.startswith(rooms)]
    values = [value for module in modules for value in [*vars(module).values()]]
    values += [each for value in values if isinstance(value, type) for each in vars(value).values()]
    return [each for each in values if hasattr(each, "cache_clear") and not isinstance(each, type)]


def _build(trial: r.Trial) -> Transformer:
    model = build_model(trial)
    embed = model.embed  # shared by training, evaluations and probes
    model.embed = lambda x: embed(x.double() if x.is_floating_point() else x)  # type: ignore[method-assign]
    return model


def versions(trial: r.Trial) -> dict[str, str]:
    """Return the versions that the numbers of `trial` depend on in float64 on path "reference"."""
    return of_paths(Codes().sources(trial), ["reference"]) or {}


def stored() -> dict[str, dict[str, Any]]:
    """Read the numbers and versions of each trial by name."""
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def main() -> None:
    known = stored() if FILE.exists() else {}
    for name, trial in trials():
        now = versions(trial)
        raised = {each: value for each, value in now.items() if value != "1"}
        if name not in known or known[name]["versions"] != raised:
            known[name] = {"versions": raised, "numbers": measure(trial)}
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in known.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
