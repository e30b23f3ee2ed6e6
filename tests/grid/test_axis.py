"""Axes and rules: names and labels, which cells there are, what they change in the base, and what is refused."""

from collections.abc import Callable
from itertools import islice, product
from typing import Literal, Self

import pytest
from hypothesis import given, strategies as st
from pydantic import model_validator
from standin import PRINCIPLED, SOFTMAX, SSA, SSA_OPERATOR, Exponential, Number, Operator, Suppress
from standin_grid import BASE, HEADS, LAYERS, OPERATORS, grid, labels

from ablate.grid import Dimension, Experiment, Grid, Spec, SpecError, forbid, has, one_at_a_time, over, zipped
from ablate.grid.names import axis_names
from ablate.grid.rule import CellRule


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["operator"], ["operator"]),
        (["model.layers"], ["layers"]),
        (["operator.gate.strength.per"], ["strength_per"]),
        (["operator.score.n.per", "operator.score.n.init"], ["n_per", "n_init"]),
        (["a.gate.strength.per", "a.margin.strength.per"], ["gate_strength_per", "margin_strength_per"]),
        (["a.x.Size", "b.x.size"], ["a_x_Size", "b_x_size"]),
        (["task.order"], ["task_order"]),
    ],
)
def test_a_name_is_the_shortest_telling_tail(paths: list[str], names: list[str]) -> None:
    assert axis_names([(path, None) for path in paths]) == names


def test_a_given_name_is_kept_and_the_others_go_round_it() -> None:
    assert axis_names([("a.size", None), ("b.c", "size")]) == ["a_size", "size"]
    with pytest.raises(SpecError, match=r"two axes are called 'x'.*give one another name="):
        axis_names([("a.b", "x"), ("a.c", "X")])


def test_labels_come_from_specs_and_values() -> None:
    assert over("operator", [SSA_OPERATOR, PRINCIPLED]).labels == ("SSA", "Principled")
    assert over("operator.score", [Exponential(), SSA()]).labels == ("exponential", "ssa")
    assert over("a", [1, 0.5, 1e-5, True, None, "x", ("layer", "head")]).labels == (
        "1", "0.5", "1e-05", "true", "none", "x", "layer, head"
    )  # fmt: skip


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_one_at_a_time_is_the_base_and_every_change_alone(sizes: list[int]) -> None:
    bundle = one_at_a_time(*(over(f"a{at}", range(size)) for at, size in enumerate(sizes)))
    assert len(bundle.choices) == len(set(bundle.choices)) == 1 + sum(size - 1 for size in sizes)
    assert all(sum(index > 0 for index in choice) <= 1 for choice in bundle.choices)


SQL = ("select", "Order", "two words", "1st", "a-b", "", "β", "x" * 151)
TAKEN = (
    *("trial", "cell", "Seed", "label", "State", "grid", "reason", "attempts", "step", "wall_s", "parameters"),
    *("operator_parameters", "value", "tag", "note", "fingerprint"),
)
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: over("operator.score.kind", ["exp"]), r"vary 'operator\.score' over \{\"kind\": \"exp\"\}"),
    *((lambda path=path: over(path, [1]), "field names joined by dots") for path in ("a..b", "")),
    (lambda: over("a", []), "has no values"),
    (lambda: over("a", "abc"), r"axis 'a' has 'abc'.*; write \['abc'\]"),
    (lambda: over("a", 2), r"axis 'a' has 2 .*; write \[2\]"),
    (lambda: over("a", [1, 2], labels=["x"]), "1 labels for 2 values"),
    (lambda: over("a", [SSA(), SSA(n=Number(init=2))]), r"several values called 'ssa'; .* labels="),
    *((lambda name=name: over("a", [1], name=name), " of SQL") for name in SQL),
    *((lambda name=name: over("a", [1], name=name), f"'{name}' is taken: .* another name=") for name in TAKEN),
    (lambda: zipped(), r"zipped\(\) has no axis"),
    (lambda: zipped(over("a", [1, 2]), over("b", [1])), "'a' has 2, 'b' has 1"),
    (lambda: zipped(over("a", [1], when=bool)), "'a' has a condition .* when= to zipped"),
    (lambda: one_at_a_time(over("a", [1], when=bool)), "'a' has a condition .* when= to one_at_a_time"),
    (lambda: grid(over("seed", [1, 2])), "axis 'seed'"),
    (lambda: grid(LAYERS, LAYERS), r"'model\.layers' comes twice"),
    *(
        (lambda name=name: Grid(name, BASE), "name .* lower-case letters")
        for name in ("a b", "-a", "a--b", "a/b", "", "ä")
    ),
    (lambda: Grid("g", BASE, over("model.layers", [1])), "grid 'g' has axes=.* a list of over"),
    (lambda: Grid("g", BASE, rules=[bool]), "grid 'g' has rules=.* a list of forbid"),
    (lambda: Grid("g", BASE, baseline="softmax"), "'g' has baseline='softmax'; give {axis name: label}"),
    (lambda: Grid("g", BASE, measure={"name": "mse"}), "'g' has measure=.* give a Measure"),
    (lambda: Grid("g", BASE, seeds=5), "'g' has seeds=5; give a list"),
    (lambda: grid(over("model.layers", [1], name="window")), "'window' is a reserved word of SQL"),
    (lambda: Grid("g", "trial"), "the base of grid 'g' is 'trial', .* give a Trial"),  # type: ignore[arg-type]
    (lambda: Grid("g", PRINCIPLED), r"the base of grid 'g' is Operator.* write class Operator\(Experiment\)"),  # type: ignore[arg-type]
    (lambda: Grid("g", Paced), r"call it: Paced\("),  # type: ignore[arg-type]
    (lambda: forbid(bool, reason=" "), "empty reason"),
    (lambda: grid(over("operator.gat.strength", [1])), "'gat' is not a field of Operator; .*did you mean 'gate'"),
    (lambda: grid(over("operator.gate.strength.init.x", [1])), "asks for 'x' of 0.5, which has no fields"),
]
STRENGTH = "operator.gate.strength.per"
REFUSED_CELLS: list[tuple[list[Dimension], list[CellRule], str]] = [
    (
        [over("model.layers", [1, 1.5])],
        [],
        r"cell 'layers=1\.5' .*: model\.layers should be a valid integer.* got 1\.5",
    ),
    ([OPERATORS, over(STRENGTH, ["head"])], [], r"cell 'softmax' .*'strength' is not a field of NoGate.*when=has\("),
    ([LAYERS, over("model.layers", [2], name="again")], [], r"2 axes .*'model\.layers'.* narrow their when="),
    ([over(STRENGTH, ["head"], when=has("operator.gat"))], [], rf"condition of '{STRENGTH}' in grid 'g' never held"),
    (
        [OPERATORS, over(STRENGTH, ["head"], when=lambda trial: trial.operator.gate.strength.init > 0)],
        [],
        rf"'{STRENGTH}' .*'operator=softmax': .*Attribute",
    ),
    ([over("operator", [SOFTMAX, Operator(name="also")])], [], "cell 'softmax' of grid 'g' and 'also' are the same"),
    (
        [LAYERS],
        [forbid(lambda trial: trial.seed == 0, reason="all")],
        "'g' has no cell: 'all' forbids 3; loosen a rule",
    ),
    *(
        ([LAYERS], [forbid(unclear, reason="why")], r"'layers=1' .*'g': rule 'why' .*\(test_axis.py:\d+\)")  # type: ignore[arg-type]
        for unclear in (lambda trial: trial.training.evaluate_every, lambda trial: trial.modle, lambda: True)
    ),
]


@pytest.mark.parametrize(("build", "words"), REFUSED)
def test_what_has_no_meaning_is_refused(build: Callable[[], object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        build()


@pytest.mark.parametrize(("axes", "rules", "words"), REFUSED_CELLS)
def test_what_is_wrong_in_one_cell_is_told_with_it(axes: list[Dimension], rules: list[CellRule], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        list(grid(*axes, rules=rules).cells())


def test_an_axis_with_a_condition_is_null_where_it_does_not_hold() -> None:
    strength = over("operator.gate.strength.per", ["layer", "head"], when=has("operator.gate.strength"))
    made = grid(strength, OPERATORS)
    assert {(p.axes["operator"], p.axes["strength_per"]) for p in made.cells()} == {
        ("softmax", None), ("SSA", None), ("Principled", "layer"), ("Principled", "head")
    }  # fmt: skip
    assert sorted(labels(made)) == ["SSA", "head · Principled", "layer · Principled", "softmax"]


def test_conditions_see_the_axes_before_them() -> None:
    ssa = has("operator.score.n")
    when_ssa = over("operator.score.n.init", [2.0, 3.0], when=ssa)
    when_large = over("operator.score.b.init", [4.0, 5.0], when=lambda t: ssa(t) and t.operator.score.n.init > 2)
    assert grid(OPERATORS, when_ssa, when_large).header()["cells"] == 2 + 1 + 2


def test_rules_leave_cells_out_and_are_counted() -> None:
    rules = [
        forbid(lambda trial: trial.model.layers == 3, reason="too deep"),
        forbid(lambda trial: trial.model.heads == 4, reason="too wide"),
        forbid(lambda trial: trial.model.layers > 9, reason="not met"),
    ]
    header = grid(LAYERS, HEADS, rules=rules).header()
    assert header["cells"] == 2
    assert header["rules"] == [
        {"reason": "too deep", "count": 2}, {"reason": "too wide", "count": 2}, {"reason": "not met", "count": 0}
    ]  # fmt: skip


def test_a_rule_may_forbid_what_cannot_be_built() -> None:
    rule = forbid(lambda trial: trial.model.width % trial.model.heads != 0, reason="heads divide the width")
    header = grid(over("model.heads", [2, 3, 4]), rules=[rule]).header()
    assert (header["cells"], header["rules"][0]["count"]) == (2, 1)


def test_axes_whose_conditions_exclude_each_other_may_share_a_path() -> None:
    softmax = lambda trial: trial.operator.label == "softmax"  # noqa: E731
    made = grid(
        OPERATORS,
        over("training.optimizer.lr", [0.1, 0.2], name="lr_softmax", when=softmax),
        over("training.optimizer.lr", [0.3], name="lr_others", when=lambda trial: not softmax(trial)),
    )
    assert sorted((p.axes["operator"], p.axes["lr_softmax"], p.axes["lr_others"]) for p in made.cells() if p) == [
        ("Principled", None, 0.3), ("SSA", None, 0.3), ("softmax", 0.1, None), ("softmax", 0.2, None)
    ]  # fmt: skip


def test_only_specs_on_the_way_of_an_axis_are_rebuilt() -> None:
    first, second = islice(grid(over("operator.gate.strength.per", ["head", "layer"])).cells(), 2)
    assert first.trial.task is second.trial.task is BASE.task  # type: ignore[attr-defined]
    assert first.trial.operator.margin is BASE.operator.margin  # type: ignore[attr-defined]
    assert first.trial.operator.gate is not BASE.operator.gate  # type: ignore[attr-defined]


def test_a_longer_path_goes_into_the_value_of_a_shorter_one() -> None:
    gates = over("operator.gate", [Suppress(width=2), Suppress(width=4)], labels=["narrow", "wide"])
    strength = over("operator.gate.strength.per", ["layer", "head"])
    for axes in ((gates, strength), (strength, gates)):
        found = {(p.trial.operator.gate.width, p.trial.operator.gate.strength.per) for p in grid(*axes).cells()}  # type: ignore[attr-defined]
        assert found == set(product([2, 4], [("layer",), ("layer", "head")]))


def test_plain_data_is_a_value_too() -> None:
    gates = over("operator.gate", [{"kind": "suppress", "width": 2}, {"kind": "none"}], labels=["narrow", "none"])
    strength = over("operator.gate.strength.per", ["layer", "head"], when=has("operator.gate.strength"))
    assert labels(grid(gates, strength)) == ["narrow · layer", "narrow · head", "none"]


class Pace(Spec):
    every: int | None = None
    whole: str | None = None
    steps: int = 100

    @model_validator(mode="after")
    def _settles(self) -> Self:
        if self.every is not None and self.every >= self.steps:
            self.set_normal_form(every=None)  # as often as never
        self.set_normal_form(whole=self.whole or f"file of {self.steps}")
        return self


class Paced(Experiment):
    kind: Literal["tests_paced"] = "tests_paced"
    pace: Pace = Pace()


def test_an_axis_begins_with_what_was_written_and_not_with_what_it_came_to() -> None:
    """The base looks every 300 steps of 100, which is never; of 1000 steps it must not be never."""
    base = Paced(pace=Pace(every=300))
    made = Grid("paced", base, [over("pace.steps", [100, 1000])], seeds=[0])
    found = [planned.trial for planned in made.enumerate()]
    assert [trial.pace.every for trial in found] == [None, 300]  # type: ignore[attr-defined]
    assert [trial.pace.whole for trial in found] == ["file of 100", "file of 1000"]  # type: ignore[attr-defined]
    assert found[1] == Paced(pace=Pace(every=300, steps=1000))
