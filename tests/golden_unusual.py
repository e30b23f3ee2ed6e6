"""Examples away from where formulas cannot be told apart, for the golden trials.

A script edited formulas one at a time: a number by a factor of 1.001, + to -, * to /, < to >=, f(x) to x, a result by a
factor of 1.001. It trained golden trials that run the formula. Edits that no trial saw led to these examples. Some go
unseen because they change no number: a guard against an empty row where none is empty, or an order of equal terms.
"""

from collections.abc import Iterator
from typing import Any, get_args

import ablate as r
from ablate.variants import (
    T5,
    Alibi,
    Bucket,
    ByDepth,
    Number,
    Operator,
    Positions,
    Rotary,
    RunningMean,
    Sinusoidal,
    Yarn,
    gpt2,
)
from ablate.variants.laws.examples import distinct, every_choice
from ablate.variants.links import Link
from ablate.variants.model.backbone import FeedForwardKind, Initialisation
from ablate.variants.operator import KINDS
from ablate.variants.stages.stage import Stage

GROWN: tuple[tuple[Link, float], ...] = (
    ("identity", -0.5),
    ("positive", 0.3),
    ("at_least_one", 1.1),
    ("unit", 0.2),
    ("clipped", 0.999),
    ("clipped", 0.001),
)
"""A start for each link away from what is special about it, and for "clipped" near its borders."""
UNUSUAL_POSITIONS: tuple[Positions, ...] = (
    Alibi(),
    Bucket(count=4, max_distance=6),
    Rotary(base=20, share=0.5),
    Sinusoidal(base=20),
    T5(count=4, max_distance=6),
    Yarn(base=20, share=0.5, factor=3, original=12, beta_fast=2, beta_slow=0.2, rounded=False),
)
"""Fields for which nine positions show every term."""
GROUND, SINK = ({"normaliser": each, "readout": "ground_value"} for each in ("ground", "sink"))
MIXED: tuple[dict[str, Any], ...] = (
    {"score": "tanh", "normaliser": "clamped"},
    {"score": "tanh", "normaliser": "absolute"},
    {"score": {"kind": "head_groups", "parts": ({"kind": "relu"}, {"kind": "ssa"})}},
    {"score": "relu", **SINK},
    {"score": "ssa", **GROUND, "margin": "ssmax"},
    {"normaliser": {"kind": "self_adjusted", "normalised": False}},
    {"signals": {"count": 2}, "merge": "difference", **GROUND},
    {"signals": {"count": 2}, "merge": {"kind": "difference", "heads": "kept"}, **SINK},
    {"signals": {"count": 2}, "merge": "mean", **GROUND},
    {"rescale": {"kind": "affine", "n": "context"}, **GROUND},
    {"rescale": "scale", **GROUND},
    {"gate": {"kind": "suppress", "width": 4, "dims": "split"}},
    {"product": {"kind": "cosformer", "length": 12}},
    {"extra": "key_value_bias", **GROUND},
    {"extra": "key_bias", "rescale": "affine"},
    {"preparation": {"kind": "rms_norm", "eps": 0.1}, "head_norm": {"kind": "rms", "eps": 0.1}},
    {"signals": {"count": 2}, "merge": "logits"},
)
"""Choices whose formula shows only beside others, or with another field."""


def grown_operators() -> list[Operator]:
    """List an operator for every choice, with all its numbers learned.

    Near their start, logits are so small and numbers so special (0, 1) that many formulas are the same line. A high
    rate of learning moves both.
    """
    mixed = (
        Operator().changed(**{stage: {"kind": each} if isinstance(each, str) else each for stage, each in one.items()})
        for one in MIXED
    )
    return distinct(each.changed(**_with_learned_numbers(each)) for each in (*every_choice(), *mixed))


def _with_learned_numbers(operator: Operator) -> dict[str, Stage]:
    stages = {}
    for stage in KINDS:
        choice: Stage = getattr(operator, stage)
        numbers = {name: each for name, each in choice.numbers().items() if "." not in name}
        trained = {
            name: each.changed(learned=True)
            for name, each in numbers.items()
            if not isinstance(each, ByDepth | RunningMean)
        }
        moved = {
            name: each.changed(init=0.3) for name, each in trained.items() if type(each) is Number and not each.init
        }
        stages[stage] = choice.changed(**trained | moved)
    return stages


def unusual(text: r.Text) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changes of tasks, evaluations and probes with fields away from their defaults, many of which are 0 or 1."""
    decays = Operator(forgetting={"kind": "decay_times"})
    yield "decay over heads", {"operator": decays, "model": gpt2(layers=1, heads=4, width=16, max_positions=16)}
    few = r.AskedLengths(lengths=(24,), sequences=2)
    grid = r.ShiftGrid(sigma_x=(1, 2), sigma_f=(3,), functions=2, sequences=2, points=5, per_position=((2, 3),))
    wide = r.LinearFunctions(points=5, batch=4, sigma_x=2, sigma_f=3, evaluation=grid)
    some = r.Quantifiers(
        batch=2, points=6, sigma=2, evaluation=r.LengthGrid(lengths=(4, 6), sigma=(2,), sequences=4), quantifier="some"
    )
    model = gpt2(layers=2, heads=2, width=8, max_positions=64)
    fine = r.BoundaryValues(points=4, contexts=2, slopes=(2.0,), x=tuple(x / 500 for x in range(-150, 151)))
    first = r.DeviantInputs(
        points=5, functions=2, sequences=2, sigma=(2, 10), prompts=(r.Prompt(x=(1, -2, 3), slope=2, intercept=1),)
    )
    yield "curriculum", {"model": model, "task": wide.changed(curriculum=r.Curriculum(start=2, every=4, increment=1))}
    yield "boundary values", {"model": model, "task": wide, "evaluations": (fine,)}
    yield "deviant inputs", {"model": model, "task": wide, "evaluations": (first,)}
    yield "some", {"task": some, "evaluations": (r.LargeValue(numbers=6, sequences=4, values=(-2, 3)),)}
    yield "hidden labels", {"task": some.changed(labels="hidden")}
    recall = r.AssociativeRecall(batch=4, context=24, pairs=4, keys=9, values=9, evaluation=few)
    yield "recall", {"task": recall.changed(queries=2, power=0.5, evaluated_pairs=(2, 3), filler=3)}
    yield "induction", {"task": r.Induction(batch=4, context=24, symbols=9, span=3, evaluation=few)}
    yield "copy", {"task": r.SelectiveCopy(batch=4, context=24, copied=3, contents=5, evaluation=few)}
    needle = r.Needle(batch=4, context=24, keys=9, values=9, evaluation=few)
    yield "needle", {"task": needle.changed(distractors=2, depths=(0.25, 0.6), filler=3)}
    grammar = r.Grammar(batch=4, context=24, nouns=8, verbs=8, names=8, validation_windows=2, agreement_pairs=4)
    rates = {"switching": 0.4, "attractor": 0.6, "transitive": 0.4, "naming": 0.6, "repeating": 0.4, "plural": 0.3}
    yield "grammar", {"task": grammar.changed(topics=3, strength=1.5, exponent=0.5, slots=2, **rates)}
    yield "documents", {"task": text.changed(packing="documents", validation_share=0.3)}
    yield "fixed token", {"task": text.changed(intervention=r.FixedToken(position=2, token=3))}
    yield "random tokens", {"task": text.changed(intervention=r.RandomTokens(positions=(2, 5)))}
    stretched = r.LengthExtrapolation(
        lengths=(16, 24), count=2, bucket=8, last=8, scaling=r.Stretch(factor=3, original=16, beta_fast=4, beta_slow=2)
    )
    yield "stretched", {"task": text, "evaluations": (stretched,)}


def backbones() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changes of a model that together use every part of it."""
    for kind in get_args(FeedForwardKind):
        yield f"with {kind}", {"feedforward": kind, "feedforward_width": 0 if kind == "none" else 16}
    for start in get_args(Initialisation):
        yield f"from {start}", {"initialisation": start, "feedforward_width": 16}
    yield "of added heads", {"head_outputs": "added", "norm_position": "post", "bias": "qkv", "sink_tokens": 2}
    yield "with shifts", {"token_shift": "both", "parallel": True, "norm": "rms", "bias": "none", "kv_heads": 1}
    yield "with dropout", {"dropout": 0.2, "attention_dropout": 0.3, "embedding_norm": True, "norm_eps": 0.1}
