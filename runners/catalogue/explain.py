"""What is known about an operator or a stage, collected from the code itself: formulas, numbers, limits, traps.

Nothing is written twice: a formula is the docstring of the module that computes it, the meaning of a number the
docstring below its field, limits and traps are declared where they are proved.
"""

import inspect
import sys
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args, get_origin, get_type_hints

import variants
from grid.spec import Spec
from runners.catalogue.lookup import find_kind, find_model
from runners.catalogue.stage_words import NumberRow, formula, number_rows, options, source_of
from runners.provenance.code import SOURCE
from variants import Backbone, Operator, Tokens, Transformer
from variants.model.shapes import shapes_only
from variants.papers.catalogue import PAPERS, NamedOperator, catalogue
from variants.paths.choose import PATHS
from variants.stages.stage import Stage

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


class Argument(NamedTuple):
    """An argument of the function that makes a named operator."""

    name: str
    default: object
    values: tuple[object, ...]
    """All it takes, where they are few; empty for any."""


class Explanation(NamedTuple):
    """Everything about one named operator."""

    name: str
    paper: str
    line: str
    use: str
    """Python that makes it."""
    arguments: tuple[Argument, ...]
    parts: tuple[Part, ...]
    numbers: tuple[NumberRow, ...]
    options: Mapping[str, object]
    """Fields of its stages that are not numbers, by "stage.field"."""
    added: int | None
    """Parameters it adds to softmax in every layer of `model`; None where it does not fit."""
    reason: str | None
    """Why it does not fit."""
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
    options: Mapping[str, object]
    traps: tuple[str, ...]
    breaks: Mapping[str, str]
    used_by: tuple[str, ...]
    """The named operators that have it."""


def explain(known: NamedOperator, model: str = MODEL) -> Explanation:
    """Everything about a named operator; NotFoundError for an unknown model."""
    operator = known.make()
    parts = different(operator) or {name: getattr(operator, name) for name in SOFTMAX}
    added, reason = added_parameters(operator, find_model(model))
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
        added=added,
        reason=reason,
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


def how_to_write(known: NamedOperator) -> str:
    """The import and the call with all defaults; of a spec file's own, the call alone."""
    home = sys.modules[known.make.__module__]
    if SOURCE in vars(home):
        return f"{known.name}() in {home.__file__}"
    exported = getattr(variants, known.name, None) is known.make
    return f"from {'variants' if exported else home.__name__} import {known.name}; {known.name}()"


def arguments(known: NamedOperator) -> tuple[Argument, ...]:
    """What the function of a named operator takes, but for the name on charts."""
    hints = get_type_hints(known.make)
    taken = [each for each in inspect.signature(known.make).parameters.values() if each.name != "name"]
    return tuple(Argument(each.name, each.default, _values(hints.get(each.name))) for each in taken)


def _values(hint: object) -> tuple[object, ...]:
    """The values of a Literal, alone or in a union."""
    among = [hint, *get_args(hint)]
    return tuple(value for each in among if get_origin(each) is Literal for value in get_args(each))


def data(found: Explanation | KindExplanation) -> dict[str, object]:
    """An explanation as plain data, rows as objects."""
    return {name: _plain(value) for name, value in found._asdict().items()}


def _plain(value: object) -> object:
    if isinstance(value, Spec):
        return value.data()
    if isinstance(value, Part | NumberRow | Argument):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def added_parameters(operator: Operator, model: Backbone) -> tuple[int | None, str | None]:
    """How many parameters the operator adds to softmax in every layer of `model`; None and the reason if unfit."""
    try:
        model.check(operator)
    except ValueError as error:
        return None, str(error)
    with shapes_only():
        built = Transformer(model, (operator,) * model.layers, inputs=Tokens(2), seed=0)
        return built.operator_parameters(), None
