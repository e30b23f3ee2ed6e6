"""What is known about an operator or a stage, collected from the code itself: formulas, numbers, limits, traps.

Nothing is written twice: a formula is the docstring of the module that computes it, the meaning of a number the
docstring below its field, limits and traps are declared where they are proved.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, get_args, get_origin, get_type_hints

import torch

import variants
from grid.errors import NotFoundError, SpecError
from grid.spec import Choice, Spec, did_you_mean
from runners.stage_words import NumberRow, formula, number_rows, options, source_of, summary
from variants import Backbone, Operator, Tokens, Transformer, backbones
from variants.operator import KINDS
from variants.papers.named import PAPERS, Named, catalogue
from variants.paths.choose import PATHS
from variants.positions.scheme import Positions
from variants.stage import Stage

MODEL = "gpt2_small"
"""The backbone that added parameters are counted in when none is named."""

SOFTMAX = ("product", "score", "normaliser", "readout")
"""The stages that say what softmax is."""


class Part(NamedTuple):
    """A stage that is not softmax's."""

    stage: str
    kind: str
    formula: str
    """What its file says: the formula, its symbols, its limits."""
    source: str


class Explanation(NamedTuple):
    """Everything about one named operator."""

    name: str
    paper: str
    line: str
    use: str
    """Python that makes it."""
    arguments: tuple[str, ...]
    """What its function takes, each with its default and, where they are few, all values."""
    parts: tuple[Part, ...]
    numbers: tuple[NumberRow, ...]
    options: Mapping[str, str]
    """Fields of its stages that are not numbers, by "stage.field"."""
    added: str
    """Parameters it adds to `model`, or why it does not fit."""
    model: str
    limits: tuple[str, ...]
    traps: tuple[str, ...]
    breaks: Mapping[str, str]
    """Laws that it does not keep, with the reason."""
    paths: Mapping[str, str]
    """Execution paths: "yes", or why it cannot run there."""


class KindExplanation(NamedTuple):
    """Everything about one choice of a stage."""

    part: Part
    home: str
    """Its class and module."""
    numbers: tuple[NumberRow, ...]
    options: Mapping[str, str]
    traps: tuple[str, ...]
    breaks: Mapping[str, str]
    used_by: tuple[str, ...]
    """The named operators that have it."""


class KindRow(NamedTuple):
    """One choice of a stage."""

    stage: str
    kind: str
    line: str
    source: str


def find_named(name: str) -> Named:
    """The named operator `name`; NotFoundError names the nearest."""
    known = catalogue()
    if name not in known:
        stages = [stage for stage, family in families().items() if name in family.members()]
        if stages:
            raise NotFoundError(f"{name!r} is a kind of {stages[0]}; `ablate operators {stages[0]} {name}` explains it")
        raise NotFoundError(
            f"there is no operator {name!r}; `ablate operators` lists them all{did_you_mean(name, list(known))}"
        )
    return known[name]


def of_paper(paper: str | None) -> list[Named]:
    """The catalogue, or what of it is from one paper; SpecError for a paper that is none of them."""
    if paper is not None and paper not in PAPERS:
        raise SpecError(f"a paper is one of {', '.join(PAPERS)}; got {paper!r}")
    return [each for each in catalogue().values() if paper in (None, each.paper)]


def families() -> dict[str, type[Choice]]:
    """The family of every stage of an operator, and that of the backbone's positions."""
    hints = {stage: Operator.model_fields[stage].annotation for stage in KINDS}
    found = {stage: hint for stage, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Choice)}
    return {**found, "positions": Positions}


def stage_kinds(only: str | None = None) -> list[KindRow]:
    """Every choice there is, in the order of the equation; or those of one stage."""
    return [
        KindRow(stage, kind, summary(member), source_of(member))
        for stage, family in families().items()
        if only in (None, stage)
        for kind, member in family.members().items()
    ]


def find_kind(stage: str, kind: str) -> type[Choice]:
    """The member `kind` of the family of `stage`; NotFoundError names the nearest."""
    known = families()
    if stage not in known:
        raise NotFoundError(
            f"there is no stage {stage!r}; the stages are {', '.join(known)}{did_you_mean(stage, list(known))}"
        )
    members = known[stage].members()
    if kind not in members:
        raise NotFoundError(
            f"stage {stage} has no kind {kind!r}; it has {', '.join(members)}{did_you_mean(kind, list(members))}"
        )
    return members[kind]


def find_model(name: str) -> Backbone:
    """The papers' model `name` of `variants.backbones`; NotFoundError names the nearest."""
    known = presets()
    if name not in known:
        near = did_you_mean(name, list(known))
        raise NotFoundError(f"there is no model {name!r}; there are {', '.join(known)}{near}")
    return known[name]()


def presets() -> dict[str, Callable[[], Backbone]]:
    """The functions of `variants.backbones` that make a model with a paper's sizes."""
    return {
        name: make
        for name, make in vars(backbones).items()
        if inspect.isfunction(make)
        and make.__module__ == backbones.__name__
        and get_type_hints(make) == {"return": Backbone}
    }


def explain(known: Named, model: str = MODEL) -> Explanation:
    """Everything about a named operator; NotFoundError for an unknown model."""
    operator = known.make()
    parts = different(operator) or {name: getattr(operator, name) for name in SOFTMAX}
    traps = [*known.traps, *(trap for stage in parts.values() for trap in getattr(stage, "traps", ()))]
    return Explanation(
        name=known.name,
        paper=PAPERS[known.paper],
        line=known.line,
        use=how_to_write(known),
        arguments=arguments(known),
        parts=tuple(
            Part(stage, choice.label, formula(type(choice)), source_of(type(choice))) for stage, choice in parts.items()
        ),
        numbers=tuple(row for stage, choice in parts.items() for row in number_rows(choice, f"{stage}.")),
        options={name: value for stage, choice in parts.items() for name, value in options(choice, f"{stage}.")},
        added=added_parameters(operator, find_model(model)),
        model=model,
        limits=tuple(f"{each.words}: {each.to().label}, outputs within {each.within:g}" for each in known.limits),
        traps=tuple(dict.fromkeys(traps)),
        breaks=operator.breaks,
        paths={path.name: path.cannot(operator) or "yes" for path in PATHS},
    )


def explain_kind(stage: str, kind: str) -> KindExplanation:
    """Everything about one choice of a stage, or of the backbone's positions; NotFoundError names the nearest."""
    member = find_kind(stage, kind)
    example = member.example() if issubclass(member, Stage) else None
    named = {each.name: each.make() for each in catalogue().values()}
    return KindExplanation(
        part=Part(stage, kind, formula(member), source_of(member)),
        home=f"{member.__name__} of {member.__module__}",
        numbers=tuple(number_rows(example)) if example else (),
        options=dict(options(example)) if example else {},
        traps=tuple(getattr(member, "traps", ())),
        breaks=example.breaks if example else {},
        used_by=tuple(name for name, operator in named.items() if getattr(operator, stage, None).__class__ is member),
    )


def different(operator: Operator) -> dict[str, Spec]:
    """The stages in which an operator is not softmax, in the order of the equation."""
    fields = Operator.model_fields
    names = [name for name in fields if name != "name"]
    return {name: getattr(operator, name) for name in names if getattr(operator, name) != fields[name].default}


def how_to_write(known: Named) -> str:
    """The import and the call with all defaults."""
    exported = getattr(variants, known.name, None) is known.make
    home = "variants" if exported else known.make.__module__
    return f"from {home} import {known.name}; {known.name}()"


def arguments(known: Named) -> tuple[str, ...]:
    """What the function of a named operator takes, but for the name on charts."""
    hints = get_type_hints(known.make)
    taken = [each for each in inspect.signature(known.make).parameters.values() if each.name != "name"]
    return tuple(f"{each.name}={each.default!r}{_values(hints.get(each.name))}" for each in taken)


def _values(hint: object) -> str:
    """The values of a Literal, alone or in a union."""
    among = [hint, *get_args(hint)]
    values = [value for each in among if get_origin(each) is Literal for value in get_args(each)]
    return f"  one of {', '.join(map(repr, values))}" if values else ""


def data(found: Explanation | KindExplanation) -> dict[str, object]:
    """An explanation as plain data, rows as objects."""
    return {name: _plain(value) for name, value in found._asdict().items()}


def _plain(value: object) -> object:
    if isinstance(value, Part | NumberRow):
        return value._asdict()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def added_parameters(operator: Operator, model: Backbone) -> str:
    """How many parameters the operator adds to softmax in every layer of `model`, or why it does not fit."""
    try:
        operator.check(
            heads=model.heads, kv_heads=model.key_heads, head_width=model.head_width, positions=model.positions
        )
    except ValueError as error:
        return f"does not fit: {error}"
    with torch.device("meta"):
        built = Transformer(model, (operator,) * model.layers, inputs=Tokens(2), seed=0)
    return f"{built.operator_parameters():,}"
