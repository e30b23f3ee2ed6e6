"""Find named operators, stages, kinds and models by name, and the choices of a spec file."""

import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple, get_type_hints

from grid.errors import NotFoundError, SpecError
from grid.spec import Choice
from grid.suggestions import suggest_name
from runners.catalogue.stage_words import source_of, summary
from variants import Backbone
from variants.laws.examples import family
from variants.model import named_backbones
from variants.operator import KINDS
from variants.papers.catalogue import PAPERS, NamedOperator, catalogue
from variants.stages.positions.scheme import Positions


class KindRow(NamedTuple):
    """Describes one choice of a stage, or a named operator (stage "operator")."""

    stage: str
    kind: str
    line: str
    source: str


def find_named(name: str) -> NamedOperator:
    """Find a named operator by its name, or by a name or label that is equal without case and signs.

    Raises:
        NotFoundError: no operator or several operators have this name.
    """
    known = catalogue()
    if name in known:
        return known[name]
    matches = [each for each in known.values() if _bare(name) in (_bare(each.name), _bare(each.make().label))]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(each.name for each in matches)
        raise NotFoundError(f"{name!r} is the label of several operators: {names}; give one of these names")
    stages = [stage for stage, family in families().items() if name in family.members()]
    if stages:
        shown = f"{', '.join(stages[:-1])} and {stages[-1]}" if stages[1:] else stages[0]
        command = f"`ablate operators {stages[0]} {name}`"
        advice = f"name the stage too, such as {command}" if stages[1:] else f"{command} explains it"
        raise NotFoundError(f"{name!r} is a kind of {shown}; {advice}")
    raise NotFoundError(
        f"there is no operator {name!r}; `ablate operators` lists them all{suggest_name(name, list(known))}"
    )


def _bare(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def of_paper(paper: str | None) -> list[NamedOperator]:
    """List the named operators of one paper, or of all. Raise SpecError for an unknown paper."""
    if paper is not None and paper not in PAPERS:
        raise SpecError(f"a paper is one of {', '.join(PAPERS)}; got {paper!r}")
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
    """Make the model `name` of `variants.model.named_backbones`, or raise NotFoundError."""
    known = presets()
    if name not in known:
        near = suggest_name(name, list(known))
        raise NotFoundError(f"there is no model {name!r}; there are {', '.join(known)}{near}")
    return known[name]()


def presets() -> dict[str, Callable[[], Backbone]]:
    """Return the functions of `variants.model.named_backbones` that make a paper's model."""
    return {
        name: make
        for name, make in vars(named_backbones).items()
        if inspect.isfunction(make)
        and make.__module__ == named_backbones.__name__
        and get_type_hints(make) == {"return": Backbone}
    }
