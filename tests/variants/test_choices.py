"""Laws of the choices themselves: names, sources, identities, ranges."""

import ast
import inspect
import re
import textwrap
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch
from pydantic import ValidationError

import variants
from grid import Grid, Spec, SpecError, over
from variants import (
    SSA,
    Exponential,
    Gate,
    GroundValue,
    Margin,
    NoGate,
    Normaliser,
    Number,
    Operator,
    Placement,
    Readout,
    Score,
    Suppress,
    Vector,
    causal,
    gpt2,
    integral,
    llama2,
    principled,
    softmax,
)
from variants.positions.scheme import Positions

FOLDERS = {"scores": Score, "normalisers": Normaliser, "readouts": Readout}
ORACLES = [
    pytest.param(member, id=f"{family.__name__}-{kind}")
    for family in (Margin, Gate, Score, Normaliser, Readout)
    for kind, member in family.members().items()
]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_is_one_choice_named_like_its_kind(folder: str) -> None:
    files = {path.stem for path in (Path(variants.__file__).parent / folder).glob("*.py")} - {"__init__"}
    own = {kind for kind, member in FOLDERS[folder].members().items() if member.__module__.startswith("variants.")}
    assert own == files, f"a file in variants/{folder} defines the one choice it is named after: {own ^ files}"


@pytest.mark.parametrize("member", ORACLES)
def test_an_oracle_knows_only_floats_and_math(member: type) -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(member.oracle)))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert not names & {"torch", "F", "Tensor"}


@pytest.mark.parametrize(
    ("member", "identity"),
    [
        pytest.param(member, identity, id=f"{kind}-tends-to-{identity.to}")
        for kind, member in Score.members().items()
        for identity in member.identities
    ],
)
def test_a_score_tends_to_what_it_says(member: type[Score], identity: variants.Tends) -> None:
    a = torch.linspace(-6, 6, 101, dtype=torch.float64)
    numbers = {name: torch.tensor(value, dtype=torch.float64) for name, value in identity.numbers.items()}
    found = member().log_score(a, **numbers).exp()
    expected = Score.members()[identity.to]().log_score(a).exp()
    assert ((found - expected).abs() / expected).max() < identity.within


def test_ssa_keeps_its_slope_at_zero() -> None:
    a = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    SSA().log_score(a, n=torch.tensor(1.5), b=torch.tensor(2.0)).sum().backward()
    assert (a.grad == 3.0).all()


REFUSED = {
    "unknown kind": (lambda: Operator(score={"kind": "sssa"}), "did you mean 'ssa'"),
    "ground value without ground": (
        lambda: Operator(readout=GroundValue()),
        "needs a normaliser with a ground state and 'total' has none",
    ),
    "granularity of a vector": (
        lambda: Vector(init=0.0, per="query"),
        "one of 'constant', 'layer', 'head'; got 'query'",
    ),
    "unknown granularity": (lambda: Number(init=0.0, per="token"), "constant, layer, head, query"),
    "fixed but varying": (lambda: Number(init=0.0, per="head", learned=False), "use per='constant'"),
    "trained at its border": (lambda: Number(init=1.0, per="head", link="at_least_one"), r"init in \(1, inf\); got 1"),
    "fixed outside its range": (lambda: Number(init=0.5, link="at_least_one"), r"init in \[1, inf\]; got 0.5"),
    "slope of ssa": (lambda: SSA(b=Number(init=-1.0, link="positive")), r"init in \(0, inf\)"),
    "link of ssa": (lambda: SSA(b=Number(init=1.0, per="head")), "needs link='positive'"),
    "no signals": (lambda: integral(0), "greater than 0"),
    "share of nothing": (lambda: Placement(share=0.0), "greater than 0"),
    "a rest that no layer gets": (lambda: Placement(rest=principled()), "no layer is left"),
    "heads that do not divide": (lambda: gpt2(layers=1, heads=3, width=32), "nearest is 2"),
    "no gate": (lambda: Suppress(width=0), "greater than 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused_with_the_rule(case: str) -> None:
    build, words = REFUSED[case]
    with pytest.raises(ValidationError, match=words):
        build()


@pytest.mark.parametrize(
    ("operator", "width", "rotary", "words"),
    [
        (integral(3), 16, False, "nearest is 2"),
        (integral(8), 8, True, "even number of channels"),
        (principled(gate_width=16, gate_dims="split"), 16, False, "leaves none"),
        (integral(2, rotary="before_split"), 16, False, "says nothing without rotary"),
    ],
)
def test_a_head_that_cannot_carry_the_operator_is_refused(
    operator: Operator, width: int, rotary: bool, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        operator.check(head_width=width, rotary=rotary)


def test_specs_of_equal_meaning_have_equal_keys() -> None:
    pairs = [
        (Number(init=0.0, per="head"), Number(init=0.0, per=("head", "layer"), learned=True)),
        (Number(init=0.0), Number(init=-0.0, learned=False)),
        (integral(1, rotary="before_split"), integral(1)),
        (Placement(share=1.0, side="bottom"), Placement()),
        (softmax(), Operator(name="mine")),
    ]
    assert all(a.key == b.key for a, b in pairs)
    assert Number(init=0.0).key != Number(init=0.0, learned=True).key


@pytest.mark.parametrize(
    ("share", "side", "layers", "expected"),
    [
        (0.5, "top", 20, range(10, 20)),
        (0.5, "top", 22, range(11, 22)),
        (0.25, "top", 5, range(3, 5)),
        (0.5, "bottom", 4, range(2)),
        (1.0, "top", 3, range(3)),
        (0.3, "top", 10, range(7, 10)),
    ],
)
def test_placement_counts_layers_from_its_side(share: float, side: str, layers: int, expected: range) -> None:
    found = Placement(share=share, side=side).operators(integral(2), layers)
    assert [layer for layer, each in enumerate(found) if each == integral(2)] == list(expected)
    assert len(found) == layers


def test_every_position_scheme_is_known_by_its_kind() -> None:
    assert sorted(Positions.members()) == ["learned", "none", "rotary"]
    assert llama2(layers=1, heads=1, width=4, feedforward_width=4).positions == Positions.members()["rotary"]()


@pytest.mark.parametrize("kind", Normaliser.members())
def test_a_normaliser_has_a_ground_state_when_it_gives_weight_to_one(kind: str) -> None:
    normaliser = Normaliser.members()[kind].example()
    numbers = {
        name: torch.tensor(value.init)
        for name in type(normaliser).model_fields
        if isinstance(value := getattr(normaliser, name), Number)
    }
    weights = normaliser.weights(torch.randn(1, 1, 3, 3), causal(3, 3), lambda a: a, **numbers)
    assert (weights.ground is not None) == normaliser.has_ground


def defined(body: str) -> type[Score]:
    """A score defined as a user would, with `body` in place of the numbers and the function."""
    code = "class Mine(Score):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    names = {"Score": Score, "ClassVar": ClassVar, "Literal": Literal, "Number": Number, "Tensor": torch.Tensor}
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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("source:", "origin:", "does not say where its formula is from"),
        (
            "*, t: Tensor",
            "*, tt: Tensor",
            r"Mine.log_score takes the numbers of its spec by name.*\['t'\]; it takes \['tt'\]",
        ),
        ("*, t: float", "", r"Mine.oracle takes the numbers"),
        ("t: Number = Number(init=1.0)", "t: tuple[Number, ...] = ()", "holds a Number inside another type"),
        ('"mine_of_test"] = "mine_of_test"', 'str] = "x"', "kind of a choice is one fixed name"),
        (
            'Literal["mine_of_test"] = "mine_of_test"',
            'Literal["ssa"] = "ssa"',
            "kind 'ssa' is already variants.scores.ssa.SSA",
        ),
    ],
)
def test_a_choice_that_is_not_whole_is_refused_when_it_is_defined(old: str, new: str, words: str) -> None:
    try:
        assert defined(SOUND)(t=Number(init=2.0)).kind == "mine_of_test"
        with pytest.raises(SpecError, match=words):
            defined(SOUND.replace(old, new))
    finally:
        Score._members.pop("mine_of_test", None)


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
def test_an_operator_that_an_axis_changed_is_not_called_what_it_was(
    base: Operator, path: str, value: object, label: str
) -> None:
    class Bearer(Spec):
        operator: Operator
        seed: int = 0

    (planned,) = Grid(name="names", base=Bearer(operator=base), axes=[over(path, [value])], seeds=[0]).cells()
    assert planned.operator == label


def test_the_example_of_the_contributing_guide_is_whole() -> None:
    root = Path(variants.__file__).parent.parent
    (example,) = re.findall(r"```python\n(.*?)```", (root / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    source = (root / "variants" / "scores" / "ssa.py").read_text(encoding="utf-8")
    imports = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    names: dict[str, type[Score]] = {}
    try:
        exec("\n".join([*imports, example]), names)
        softcap = names["Softcap"]()
        a = torch.linspace(-60, 60, 13, dtype=torch.float64)
        cap = torch.tensor(30.0, dtype=torch.float64)
        expected = [softcap.oracle(each, cap=30.0) for each in a.tolist()]
        assert softcap.log_score(a, cap=cap).exp().tolist() == pytest.approx(expected)
    finally:
        Score._members.pop("softcap", None)


def test_placements_of_the_same_layers_are_the_same_spec() -> None:
    assert {Placement(share=share).on(2).key for share in (0.1, 0.25, 0.5)} == {Placement(share=0.5).key}
    assert Placement(share=0.75).on(2) == Placement()
    with pytest.raises(ValueError, match=r"share 0\.75 of 2 layers is all of them"):
        Placement(share=0.75, rest=principled()).on(2)
