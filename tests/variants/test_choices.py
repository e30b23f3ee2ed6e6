"""Laws of the choices themselves: names, sources, identities, ranges."""

import inspect
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import ClassVar, Literal

import pytest
import torch
from pydantic import ValidationError

from ablate.grid import Experiment, Grid, Spec, SpecError, over, spec_error
from ablate.variants import (
    SSA,
    Exponential,
    LogScore,
    NoGate,
    NoPositions,
    Number,
    Operator,
    Rotary,
    Score,
    Stage,
    integral,
    principled,
    softmax,
    ssa,
)
from ablate.variants.laws.examples import family
from ablate.variants.operator import KINDS
from ablate.variants.papers.catalogue import catalogue
from ablate.variants.stages.positions import Positions

MEMBERS = [
    pytest.param(member, id=f"{stage}-{kind}") for stage in KINDS for kind, member in family(stage).members().items()
]


def test_the_choices_of_a_stage_are_in_one_file() -> None:
    for stage in KINDS:
        homes = {member.__module__ for member in family(stage).members().values()}
        assert (
            len({home for home in homes if home.startswith("ablate.variants.")} - {"ablate.variants.stages.neutral"})
            <= 1
        ), stage


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the globals and attributes that a function reads, inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_choice_has_a_source_and_an_oracle_of_floats_and_math(member: type[Stage]) -> None:
    """The oracle calls neither the formula nor another function of its module."""
    module = inspect.getmodule(member)
    assert member.__doc__
    assert len(member.source) > 3
    assert all(pitfall.endswith(".") for pitfall in member.pitfalls)
    names = set(names_in(member.oracle.__code__))
    formulas = {name for name, value in vars(member).items() if isinstance(value, FunctionType)}
    assert not names & formulas
    assert names & vars(module).keys() <= {"math"}


@pytest.mark.parametrize(
    ("operator", "width", "positions", "words"),
    [
        (integral(3), 16, NoPositions(), "signals.count divides a head's 16 channels; got 3, use other heads"),
        (integral(8), 8, Rotary(), "even number of channels per signal; got 1; use fewer signals, .*'before_split'"),
        (integral(4, rotary="before_split"), 6, Rotary(), "divides a head's 6 channels; got 4, use other heads"),
        (softmax(), 7, Rotary(), "even number of channels per signal; got 7; use other heads or another width"),
        (principled(gate_width=16, gate_dims="split"), 16, NoPositions(), "leaves none"),
        (integral(2, rotary="before_split"), 16, NoPositions(), "says nothing without rotary"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(operator: Operator, width: int, positions: Positions, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        operator.check(heads=4, kv_heads=4, head_width=width, positions=positions)


def test_arguments_of_named_operators_take_the_values_they_are_annotated_with() -> None:
    known = catalogue()
    for name, values in (("affine_gated", {"n": "keys"}), ("fox", {"per": "tokens"}), ("ssa", {"b_per": "none"})):
        ((argument, given),) = values.items()
        with pytest.raises(SpecError, match=f"^{name}: {argument} should be '.*, got {given!r}"):
            known[name].make(**values)
    assert known["ssa"].make(b_per=None) == known["ssa"].make()
    assert inspect.signature(known["ssa"].make).parameters["n"].default == 1.5


def test_a_number_that_is_not_finite_is_named_by_its_argument() -> None:
    for argument in ("n", "b"):
        with pytest.raises(SpecError, match=f"^ssa: {argument} should be a finite number, got nan"):
            ssa(**{argument: float("nan")})


@pytest.mark.parametrize(
    ("name", "hint"), [("sofmax", "write softmax()"), ("SSA", "write ssa()"), ("zzz", "`ablate operators` lists")]
)
def test_a_name_in_place_of_an_operator_is_answered_with_one_that_exists(name: str, hint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"operator": name})
    assert f"got {name!r}; {hint}" in str(spec_error(caught.value, ""))


class Holder(Spec):
    """A spec with an operator, as a trial is."""

    operator: Operator


def test_specs_of_equal_meaning_have_equal_keys() -> None:
    pairs = [
        (Number(init=0.0, per="head"), Number(init=0.0, per=("head", "layer"), learned=True)),
        (Number(init=0.0), Number(init=-0.0, learned=False)),
        (integral(1, rotary="before_split"), integral(1)),
        (softmax(), Operator(name="mine")),
    ]
    assert all(a.key == b.key for a, b in pairs)
    assert Number(init=0.0).key != Number(init=0.0, learned=True).key


def define_score(body: str) -> type[Score]:
    """A score defined as a user would, with `body` in place of the numbers and the function."""
    code = "class Mine(LogScore):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    names = {"LogScore": LogScore, "ClassVar": ClassVar, "Literal": Literal, "Number": Number, "Tensor": torch.Tensor}
    exec(code, names)
    return names["Mine"]


SOUND = """
    source: ClassVar[str] = "here"
    kind: Literal["mine_of_test"] = "mine_of_test"
    t: Number = Number(init=1.0)
    def log_score(self, a: Tensor, *, t: Tensor) -> Tensor:
        return a / t
    def oracle(self, a: float, *, t: float) -> float:
        return a / t
"""


KIND = 'kind: Literal["mine_of_test"] = "mine_of_test"'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("source:", "origin:", "does not say where its formula is from"),
        ("def log_score", "def log_scores", "Mine does not define log_score; derive it from LogScore"),
        ("*, t: Tensor", "*, tt: Tensor", r"takes the numbers of its spec by name.*\['t'\]; it takes \['tt'\]"),
        ("*, t: float", "", r"Mine.oracle takes the numbers"),
        ("t: Number = Number(init=1.0)", "t: float = 1.0", r"declare t as a Number, or read it from self"),
        (KIND, "", 'Mine has no kind; add kind: Literal\\["mine"\\] = "mine"'),
        ("t: Number = Number(init=1.0)", "t: tuple[Number, ...] = ()", "holds a Number inside another type"),
        (KIND, 'kind: str = "x"', "not one fixed name"),
        (KIND, 'kind: Literal["ssa"] = "ssa"', "kind 'ssa' is already ablate.variants.stages.scores.SSA"),
    ],
)
def test_a_choice_that_is_not_whole_is_refused_when_it_is_defined(old: str, new: str, words: str) -> None:
    assert define_score(SOUND)(t=Number(init=2.0)).kind == "mine_of_test"
    with pytest.raises(SpecError, match=words):
        define_score(SOUND.replace(old, new))


@pytest.mark.parametrize(
    ("base", "path", "value", "label"),
    [
        (softmax(), "operator.score", SSA(), "softmax + ssa"),
        (softmax(), "operator.score", Exponential(), "softmax"),
        (softmax(), "operator.signals.count", 4, "softmax S=4"),
        (Operator(), "operator.score", SSA(), "ssa"),
        (principled(), "operator.gate.strength.per", "head", "Principled"),
        (principled(), "operator.gate", NoGate(), "Principled + gate none"),
        (softmax(), "operator", integral(2), "Integral S=2"),
    ],
)
def test_a_changed_operator_has_another_label(base: Operator, path: str, value: object, label: str) -> None:
    class Bearer(Experiment):
        kind: Literal["tests_bearer"] = "tests_bearer"
        operator: Operator

    (planned,) = Grid(name="names", base=Bearer(operator=base), axes=[over(path, [value])], seeds=[0]).cells()
    assert planned.operator == label
