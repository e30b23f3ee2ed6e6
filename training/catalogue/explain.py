"""Facts about operators and stages, collected from the code: formulas, numbers, limits and pitfalls.

A formula is the docstring of the class that computes it. The meaning of a number is the docstring below its field.
Limits and pitfalls are declared beside the code that is proved.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Literal, NamedTuple, get_args, get_origin, get_type_hints

from ablate import variants
from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.spec import Choice, Spec
from ablate.grid.suggestions import suggest_name
from ablate.runners.provenance.code import SOURCE
from ablate.training.catalogue.explanation import Argument, Explanation, StageFormula
from ablate.training.catalogue.stage_words import formula, number_rows, options, source_of, summary
from ablate.variants import Backbone, Operator, Tokens, Transformer
from ablate.variants.laws.examples import family
from ablate.variants.model import named_backbones
from ablate.variants.model.shapes import shapes_only
from ablate.variants.operator import KINDS
from ablate.variants.papers.catalogue import PAPERS, NamedOperator, catalogue
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS, choose
from ablate.variants.stages.positions import Positions
from ablate.variants.stages.stage import Stage

MODEL = "gpt2_small"
"""The default backbone in which added parameters are counted."""

SOFTMAX = ("product", "score", "normaliser", "readout")
"""The stages that define softmax."""


def explain(known: NamedOperator, model: str = MODEL) -> Explanation:
    """Collect all facts about a named operator. Raise NotFoundError for an unknown model."""
    operator = known.make()
    parts = different_stages(operator) or {name: getattr(operator, name) for name in SOFTMAX}
    added, reason = added_parameters(operator, find_model(model))
    return Explanation(
        of="operator",
        name=known.name,
        line=known.line,
        home=PAPERS[known.paper],
        use=how_to_write(known),
        arguments=arguments(known),
        formulas=describe_parts(parts),
        numbers=tuple(row for stage, choice in parts.items() for row in number_rows(choice, f"{stage}.")),
        options={name: value for stage, choice in parts.items() for name, value in options(choice, f"{stage}.")},
        added=added,
        reason=reason,
        model=model,
        limits=tuple(f"{each.words}: {each.to().label}, outputs within {each.within:g}" for each in known.limits),
        pitfalls=tuple(dict.fromkeys(find_pitfalls(known, parts))),
        breaks=operator.breaks,
        paths={path.name: path.cannot(operator) or "yes" for path in PATHS},
    )


def path_rows(operator: Operator, case: Case) -> list[tuple[str, str, str]]:
    """List all execution paths, fastest first: name, whether it is chosen ("yes", "no"), and why not."""
    chosen = choose(operator, case)
    rows = []
    for path in PATHS:
        reason = chosen.reasons.get(path.name) or path.reason(operator, case) or f"{chosen.path.name} is faster"
        rows.append((path.name, "yes", "") if path is chosen.path else (path.name, "no", reason))
    return rows


def describe_parts(parts: Mapping[str, Spec]) -> tuple[StageFormula, ...]:
    """Return the formula and the source of each stage."""
    return tuple(
        StageFormula(stage, choice.label, formula(type(choice)), source_of(type(choice)))
        for stage, choice in parts.items()
    )


def find_pitfalls(known: NamedOperator, parts: Mapping[str, Spec]) -> list[str]:
    """List the pitfalls of a named operator and of its stages."""
    return [
        *known.pitfalls,
        *(pitfall for stage in parts.values() for pitfall in getattr(stage, "pitfalls", ())),
    ]


def explain_kind(stage: str, kind: str) -> Explanation:
    """Collect all facts about one choice of a stage or of positions. Raise NotFoundError for an unknown one."""
    member = find_kind(stage, kind)
    example = member.example() if issubclass(member, Stage) else None
    named = {each.name: each.make() for each in catalogue().values()}
    return Explanation(
        of=stage,
        name=kind,
        line=summary(member),
        formulas=(StageFormula(stage, kind, formula(member), source_of(member)),),
        home=f"{member.__name__} of {member.__module__}",
        numbers=tuple(number_rows(example)) if example else (),
        options=dict(options(example)) if example else {},
        pitfalls=tuple(getattr(member, "pitfalls", ())),
        breaks=example.breaks if example else {},
        used_by=tuple(name for name, operator in named.items() if getattr(operator, stage, None).__class__ is member),
    )


def different_stages(operator: Operator) -> dict[str, Spec]:
    """Return the stages in which an operator differs from softmax, in the order of the equation."""
    fields = Operator.model_fields
    names = [name for name in fields if name != "name"]
    return {name: getattr(operator, name) for name in names if getattr(operator, name) != fields[name].default}


def how_to_write(known: NamedOperator) -> str:
    """Write the import and the call with all defaults, or the call alone for a function of a spec file."""
    home = sys.modules[known.make.__module__]
    if SOURCE in vars(home):
        return f"{known.name}() in {home.__file__}"
    exported = getattr(variants, known.name, None) is known.make
    return f"from {'ablate' if exported else home.__name__} import {known.name}; {known.name}()"


def arguments(known: NamedOperator) -> tuple[Argument, ...]:
    """List the arguments of the function of a named operator, without the name on charts."""
    hints = get_type_hints(known.make)
    taken = [each for each in inspect.signature(known.make).parameters.values() if each.name != "name"]
    rows = []
    for each in taken:
        hint = hints.get(each.name)
        literals = [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal]  # alone or in a union
        rows.append(Argument(each.name, each.default, tuple(value for part in literals for value in get_args(part))))
    return tuple(rows)


def data(explanation: tuple[object, ...]) -> dict[str, object]:
    """Convert an explanation, which is a NamedTuple, to plain data; rows become objects."""
    fields: dict[str, object] = explanation._asdict()  # type: ignore[attr-defined]
    return {"about" if name == "docstring" else name: _plain(value) for name, value in fields.items()}


def _plain(value: object) -> object:
    if isinstance(value, Spec):
        return value.data()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return data(value) if hasattr(value, "_asdict") else [_plain(each) for each in value]
    return value


def added_parameters(operator: Operator, model: Backbone) -> tuple[int | None, str | None]:
    """Count the parameters added to softmax in all layers of `model`, or return None and why it does not fit."""
    try:
        model.check(operator)
    except ValueError as error:
        return None, str(error)
    with shapes_only():
        built = Transformer(model, (operator,) * model.layers, inputs=Tokens(2), seed=0)
        return built.operator_parameters(), None


class KindRow(NamedTuple):
    """Describes one choice of a stage, or a named operator (stage "operator")."""

    stage: str
    kind: str
    line: str
    source: str


def find_named(name: str) -> NamedOperator:
    """Find a named operator, or raise NotFoundError."""
    known = catalogue()
    if name not in known:
        near = suggest_name(name, list(known))
        raise NotFoundError(f"there is no operator {name!r}; `ablate operators` lists them all{near}")
    return known[name]


def of_paper(paper: str | None) -> list[NamedOperator]:
    """List the named operators of one paper, or of all. Raise SpecError for an unknown paper."""
    if paper is not None and paper not in PAPERS:
        raise SpecError(f"{paper!r} is no paper; there are {', '.join(PAPERS)}")
    return [each for each in catalogue().values() if paper in (None, each.paper)]


def families() -> dict[str, type[Choice]]:
    """Return the family of every stage of an operator, and of the backbone's positions."""
    return {**{stage: family(stage) for stage in KINDS}, "positions": Positions}


def stage_kinds(only: str | None = None) -> list[KindRow]:
    """List all choices in the order of the equation, or those of one stage."""
    return [
        KindRow(stage, kind, summary(member), source_of(member))
        for stage, family in families().items()
        if only in (None, stage)
        for kind, member in family.members().items()
    ]


def defined_in(module: ModuleType) -> list[KindRow]:
    """List the named operators and choices that a spec file defines. Raise SpecError if it defines none."""
    named = [each for each in catalogue().values() if each.make.__module__ == module.__name__]
    rows = [KindRow("operator", each.name, each.line, PAPERS[each.paper]) for each in named]
    rows += [row for row in stage_kinds() if find_kind(row.stage, row.kind).__module__ == module.__name__]
    if not rows:
        raise SpecError(
            f"{module.__file__} defines neither a named operator nor a choice of a stage; decorate a function with "
            "@named_operator('beyond'), or leave --spec out"
        )
    return rows


def find_kind(stage: str, kind: str) -> type[Choice]:
    """Find the member `kind` of the family of `stage`, or raise NotFoundError."""
    known = families()
    if stage not in known:
        raise NotFoundError(
            f"there is no stage {stage!r}; the stages are {', '.join(known)}{suggest_name(stage, list(known))}"
        )
    members = known[stage].members()
    if kind not in members:
        raise NotFoundError(
            f"stage {stage} has no kind {kind!r}; it has {', '.join(members)}{suggest_name(kind, list(members))}"
        )
    return members[kind]


def find_model(name: str) -> Backbone:
    """Make the model `name` of `ablate.variants.model.named_backbones`, or raise NotFoundError."""
    known = presets()
    if name not in known:
        near = suggest_name(name, list(known))
        raise NotFoundError(f"there is no model {name!r}; there are {', '.join(known)}{near}")
    return known[name]()


def presets() -> dict[str, Callable[[], Backbone]]:
    """Return the functions of `ablate.variants.model.named_backbones` that make a paper's model."""
    return {
        name: make
        for name, make in vars(named_backbones).items()
        if inspect.isfunction(make)
        and make.__module__ == named_backbones.__name__
        and get_type_hints(make) == {"return": Backbone}
    }
