"""Example operators for the laws: every choice of every stage, every named operator, and combinations of choices."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, combinations, product

from ablate.grid.errors import SpecError
from ablate.variants.laws.inputs import fit
from ablate.variants.operator import KINDS, Operator
from ablate.variants.papers.catalogue import catalogue
from ablate.variants.papers.principled import principled
from ablate.variants.stages.stage import Stage


def family(stage: str) -> type[Stage]:
    """Return the family of choices of a stage."""
    choice = Operator.model_fields[stage].annotation
    assert isinstance(choice, type)
    assert issubclass(choice, Stage)
    return choice


def every_choice() -> Iterator[Operator]:
    """Yield an operator for every choice of every stage, with the other stages as near to softmax as possible."""
    for stage in KINDS:
        for kind, member in family(stage).members().items():
            yield around(stage, member.example()).changed(name=f"{stage} {kind}")


def around(stage: str, choice: Stage) -> Operator:
    """Build an operator with `choice` and at most two other changes of softmax; SpecError if none is valid."""
    reason = ""
    for more in _surroundings():
        if stage in more:
            continue
        try:
            operator = Operator().changed(**{**more, stage: choice})
            fit(operator)
        except SpecError as error:
            reason = reason or str(error)
        else:
            return operator
    raise SpecError(
        f"no operator was found around {stage} {choice.label!r}, whatever two other stages are; alone: {reason}"
    )


def _surroundings() -> Iterator[dict[str, object]]:
    """Yield changes of other stages: none, the most common one, then single changes and pairs."""
    yield {}
    yield {"normaliser": {"kind": "ground"}}
    singles: list[dict[str, object]] = [{"signals": {"count": 2}}]
    for stage in KINDS:
        default = Operator.model_fields[stage].default
        members = (member for member in family(stage).members().values() if not isinstance(default, member))
        singles += [{stage: member.example()} for member in members]
    yield from singles
    yield from ({**a, **b} for a, b in combinations(singles, 2) if not a.keys() & b.keys())


def named_operators() -> Iterator[Operator]:
    """Yield every named operator with its default arguments, under its function's name."""
    for name, known in catalogue().items():
        yield known.make().changed(name=name)


_PAIRS = (
    ("score", "normaliser"),
    ("merge", "normaliser"),
    ("extra", "normaliser"),
    ("margin", "normaliser"),
    ("rescale", "normaliser"),
    ("readout", "normaliser"),
    ("forgetting", "score"),
    ("product", "score"),
    ("transform", "score"),
    ("margin", "score"),
    ("score", "head_norm"),
    ("rescale", "head_norm"),
    ("score", "rescale"),
    ("visible", "forgetting"),
    ("extra", "forgetting"),
    ("extra", "product"),
    ("preparation", "product"),
    ("transform", "margin"),
    ("merge", "rescale"),
    ("extra", "rescale"),
    ("head_norm", "output_gate"),
)
"""Stages whose choices are tried together, because they share a row, a mask or an order."""


def combinations_of_choices(only: tuple[Stage, ...] = ()) -> Iterator[Operator]:
    """Yield valid combinations of choices; with `only`, those that contain one of these choices."""
    chosen = {type(choice) for choice in only}
    if not only:
        yield principled("head", gate_width=4, gate_dims="split").changed(name="principled split")
    for base, stages, start in _combinations():
        if only and not chosen & {type(choice) for choice in stages.values()}:
            continue
        name = start + " ".join(f"{stage} {choice.label}" for stage, choice in stages.items())
        for more in ({}, {"signals": {"count": 2}}):  # one signal, or else two
            try:
                operator = base.changed(**stages, **more, name=name)
                fit(operator)
            except SpecError:
                continue
            yield operator
            break


def _combinations() -> Iterator[tuple[Operator, dict[str, Stage], str]]:
    """Yield (base operator, changed stages, start of the name)."""
    for first, second in _PAIRS:
        for a, b in product(family(first).members().values(), family(second).members().values()):
            yield Operator(), {first: a.example(), second: b.example()}, ""
    two, ours = Operator().changed(signals={"count": 2}), principled("head", gate_width=4)
    others = [stage for stage in KINDS if stage not in ("margin", "gate")]
    for base, start, stages in (
        (two, "two signals ", ["product", "score", "transform"]),
        (ours, "principled ", others),
    ):
        for stage in stages:
            for member in family(stage).members().values():
                yield base, {stage: member.example()}, start


def distinct(operators: Iterator[Operator]) -> list[Operator]:
    """Keep each operator once, under its first name."""
    by_key: dict[str, Operator] = {}
    for operator in operators:
        by_key.setdefault(operator.key, operator)
    return list(by_key.values())


@lru_cache(maxsize=1)
def examples() -> tuple[Operator, ...]:
    """List all example operators, each once."""
    return tuple(distinct(chain(named_operators(), every_choice(), combinations_of_choices())))
