"""What a grid makes of a base, axes, rules and seeds."""

import json
from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standin import (
    PRINCIPLED,
    SOFTMAX,
    SSA_OPERATOR,
    Operator,
    Suppress,
    Trial,
    headline,
)

from grid import Dimension, Grid, Measure, SpecError, cell_key, forbid, has, one_at_a_time, over, zipped

BASE = Trial(operator=PRINCIPLED)
LAYERS = over("model.layers", [1, 2, 3])
HEADS = over("model.heads", [2, 4])
OPERATORS = over("operator", [SOFTMAX, SSA_OPERATOR, PRINCIPLED])


def grid(*axes: Dimension, **rest: object) -> Grid:
    return Grid("g", BASE, axes, **{"seeds": range(2)} | rest)  # type: ignore[arg-type]


def labels(made: Grid) -> list[str]:
    return [planned.label for planned in made.cells()]


def test_axes_multiply() -> None:
    made = grid(LAYERS, HEADS)
    cells = [(planned.trial.model.layers, planned.trial.model.heads) for planned in made.cells()]  # type: ignore[attr-defined]
    assert cells == list(product([1, 2, 3], [2, 4]))
    assert (made.header()["cells"], made.header()["trials"]) == (6, 12)


def test_a_grid_without_axes_is_the_base() -> None:
    only = list(grid(seeds=[7]).trials())
    assert [planned.trial for planned in only] == [BASE.changed(seed=7)]
    assert only[0].label == "Principled"


def test_zipped_axes_vary_together() -> None:
    cells = grid(zipped(over("model.layers", [1, 2]), over("model.heads", [2, 4])), over("training.steps", [10, 20]))
    assert [(p.axes["layers"], p.axes["heads"], p.axes["steps"]) for p in cells.cells()] == [
        (1, 2, 10), (1, 2, 20), (2, 4, 10), (2, 4, 20)
    ]  # fmt: skip


def test_one_at_a_time_changes_one_thing() -> None:
    made = grid(one_at_a_time(LAYERS, HEADS, over("training.steps", [10, 20])))
    assert made.header()["cells"] == 1 + 2 + 1 + 1


def test_the_headline_grid_has_192_cells_times_seeds() -> None:
    header = headline().header()
    assert (header["cells"], header["trials"]) == (192, 960)
    assert [axis["name"] for axis in header["axes"]] == [
        "strength_per", "threshold_per", "amplification_per", "ground_value_per"
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


def test_a_check_across_fields_sees_the_final_combination_only() -> None:
    made = grid(zipped(over("model.heads", [3, 5]), over("model.width", [9, 10])))
    assert made.header()["cells"] == 2


# identity ------------------------------------------------------------------------------------------------------------


def test_keys_are_those_of_the_trials_and_cells() -> None:
    for planned in grid(OPERATORS, LAYERS).trials():
        assert planned.key == planned.trial.key
        assert planned.cell == cell_key(planned.trial)
        assert planned.seed == planned.trial.seed  # type: ignore[attr-defined]
        assert planned.operator == planned.trial.operator.label  # type: ignore[attr-defined]


def test_a_planned_trial_is_what_one_would_build_by_hand() -> None:
    by_hand = BASE.changed(model=BASE.model.changed(layers=2), seed=1)
    assert by_hand.key in {planned.key for planned in grid(LAYERS).trials()}


def test_two_equal_cells_are_named() -> None:
    twins = over("operator", [SOFTMAX, Operator(name="also softmax")])
    with pytest.raises(SpecError, match="cell 'softmax' of grid 'g' and 'also softmax' are the same"):
        list(grid(twins).trials())


def test_seeds_are_replicates() -> None:
    for seeds in ([], [1, 1], [True], ["1"], [1.0]):
        with pytest.raises(SpecError, match="seeds of a grid are whole numbers"):
            grid(LAYERS, seeds=seeds)
    with pytest.raises(SpecError, match="not an axis"):
        grid(over("seed", [1, 2]))


# order ---------------------------------------------------------------------------------------------------------------


def test_any_prefix_of_the_order_has_run_a_seed_for_every_cell_before_the_next() -> None:
    made = grid(OPERATORS, LAYERS, seeds=[5, 3, 9])
    order = list(made.trials())
    assert [planned.seed for planned in order] == [5] * 9 + [3] * 9 + [9] * 9
    for seed in (5, 3, 9):
        assert len({planned.cell for planned in order if planned.seed == seed}) == 9


def test_the_order_within_a_seed_is_fixed_and_not_the_order_of_declaration() -> None:
    made = headline()
    cells = [planned.cell for planned in made.trials()]
    assert cells[:192] == cells[192:384] == sorted(cells[:192])
    assert cells[:192] != [planned.cell for planned in made.cells()]


def test_half_a_grid_has_seen_every_level_of_every_axis() -> None:
    half = list(islice(headline().trials(), 96))
    for axis in headline().header()["axes"]:
        assert {planned.axes[axis["name"]] for planned in half} == set(axis["labels"])


def test_enumeration_sorted_by_turn_is_execution_order() -> None:
    made = grid(OPERATORS, LAYERS)
    assert sorted(made.enumerate(), key=lambda planned: planned.turn) == list(made.trials())


def test_the_first_trial_of_a_billion_cells_arrives_at_once() -> None:
    wide = [over(f"operator.{path}", [0.1 * n for n in range(10)]) for path in (
        "gate.strength.init", "normaliser.threshold.init", "margin.amplification.init", "readout.ground_value.init"
    )]  # fmt: skip
    more = [over("training.optimizer.lr", [0.1**n for n in range(1, 11)]), over("model.layers", range(1, 11))]
    rest = [over("training.steps", range(1, 11)), over("model.hidden", range(1, 11)), over("task.batch", range(1, 11))]
    first = list(islice(grid(*wide, *more, *rest).enumerate(), 3))
    assert [planned.seed for planned in first] == [0, 1, 0]


# conditions and rules ------------------------------------------------------------------------------------------------


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


def test_bundles_may_have_a_condition() -> None:
    numbers = [over(f"operator.score.{name}.init", [2.0, 3.0]) for name in "nb"]
    both = zipped(*numbers, when=has("operator.score.n"))
    assert grid(OPERATORS, both).header()["cells"] == 4


def test_a_condition_that_never_holds_is_an_error() -> None:
    with pytest.raises(SpecError, match=r"condition of 'operator\.gate\.strength\.per' in grid 'g' never held"):
        list(grid(over("operator.gate.strength.per", ["head"], when=has("operator.gat"))).cells())


def test_a_condition_that_raises_is_named_with_its_cell() -> None:
    strength = over("operator.gate.strength.per", ["head"], when=lambda trial: trial.operator.gate.strength.init > 0)
    with pytest.raises(
        SpecError, match=r"axis 'operator\.gate\.strength\.per' at cell 'operator=softmax': .*Attribute"
    ):
        list(grid(OPERATORS, strength).cells())


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


def test_rules_that_leave_nothing_are_an_error_with_their_counts() -> None:
    with pytest.raises(SpecError, match="grid 'g' has none: 'all' forbids 3; loosen a rule"):
        grid(LAYERS, rules=[forbid(lambda trial: trial.seed == 0, reason="all")]).header()


@pytest.mark.parametrize(
    "predicate", [lambda trial: trial.training.evaluate_every, lambda trial: trial.modle, lambda: True]
)
def test_a_rule_that_cannot_say_is_named_with_its_cell(predicate: object) -> None:
    with pytest.raises(SpecError, match=r"cell 'layers=1' of grid 'g': rule 'why' (answered|raised)"):
        grid(LAYERS, rules=[forbid(predicate, reason="why")]).header()  # type: ignore[arg-type]


def test_a_rule_has_a_reason() -> None:
    with pytest.raises(SpecError, match="a rule says why"):
        forbid(bool, reason=" ")


def test_a_combination_that_cannot_be_built_names_its_cell() -> None:
    with pytest.raises(SpecError, match="cell 'heads=3' of grid 'g' cannot be built: model: heads divide the width"):
        list(grid(over("model.heads", [2, 3])).cells())


def test_a_rule_may_forbid_what_cannot_be_built() -> None:
    rule = forbid(lambda trial: trial.model.width % trial.model.heads != 0, reason="heads divide the width")
    header = grid(over("model.heads", [2, 3, 4]), rules=[rule]).header()
    assert (header["cells"], header["rules"][0]["count"]) == (2, 1)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("operator.gat.strength", "'gat' is not a field of Operator; it has gate, margin, .*did you mean 'gate'"),
        ("operator.gate.strength.init.x", "asks for 'x' of 0.5, which has no fields"),
        ("moddel", "'moddel' is not a field of Trial; it has .*did you mean 'model'"),
    ],
)
def test_a_path_that_leads_nowhere_is_told_at_once(path: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        grid(over(path, [1]))


def test_a_path_that_leads_nowhere_in_one_cell_is_told_with_the_cell_and_the_remedy() -> None:
    with pytest.raises(SpecError, match=r"cell 'softmax' .*'strength' is not a field of NoGate.*when=has\("):
        list(grid(OPERATORS, over("operator.gate.strength.per", ["head"])).cells())


def test_a_value_of_the_wrong_type_is_told_with_path_and_cell() -> None:
    with pytest.raises(SpecError, match=r"cell 'layers=1\.5' .*: model\.layers should be a valid integer.* got 1\.5"):
        list(grid(over("model.layers", [1, 1.5])).cells())


def test_a_field_is_set_by_one_axis_at_a_time() -> None:
    twice = [over("model.layers", [1]), over("model.layers", [2], name="again")]
    with pytest.raises(SpecError, match=r"'model\.layers' by 2, narrow their when="):
        list(grid(*twice).cells())
    with pytest.raises(SpecError, match=r"'model\.layers' comes twice"):
        grid(LAYERS, LAYERS)


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


# labels, baseline, header --------------------------------------------------------------------------------------------


def test_labels_say_which_number_is_which_and_leave_out_what_does_not_vary() -> None:
    assert labels(grid(over("model.layers", [1]), HEADS, OPERATORS))[:2] == ["heads=2 · softmax", "heads=2 · SSA"]
    assert labels(headline())[0].startswith("strength_per=constant · threshold_per=constant")


@given(st.sampled_from(["softmax", "SSA", SOFTMAX, SSA_OPERATOR]), st.sampled_from([1, 2, "3"]))
def test_the_baseline_is_selected_by_label_or_value(operator: object, layers: object) -> None:
    made = grid(OPERATORS, LAYERS, baseline={"operator": operator, "layers": layers})
    found = next(p for p in made.cells() if p.cell == made.header()["baseline"])
    assert found.axes["operator"] == getattr(operator, "label", operator)
    assert found.axes["layers"] == int(str(layers))


def test_the_baseline_may_be_where_an_axis_does_not_apply() -> None:
    strength = over("operator.gate.strength.per", ["layer", "head"], when=has("operator.gate.strength"))
    made = grid(over("operator", [SOFTMAX, PRINCIPLED]), strength, baseline={"strength_per": None})
    assert made.header()["baseline"] == cell_key(Trial())


@pytest.mark.parametrize(
    ("baseline", "told"),
    [
        ({"operatr": "SSA"}, "'g' has no axis 'operatr', it has operator, layers"),
        ({"operator": "SSA"}, "operator='SSA' selects 'SSA · layers=1', 'SSA · layers=2', 'SSA · layers=3', name more"),
        ({"operator": "SSA", "layers": 9}, "no cell has operator='SSA', layers=9, near: 'SSA · layers=1', "),
    ],
)
def test_a_baseline_is_exactly_one_cell(baseline: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError) as caught:
        grid(OPERATORS, LAYERS, baseline=baseline).header()
    assert told in str(caught.value)


def test_the_header_is_plain_json_with_every_promised_entry() -> None:
    made = grid(OPERATORS, LAYERS, baseline={"operator": "softmax", "layers": 1}, measure=Measure(name="mse"))
    header = made.header()
    assert json.loads(json.dumps(header)) == header
    assert list(header) == [
        "schema", "grid", "cells", "trials", "seeds", "axes", "rules", "baseline", "measure", "base"
    ]  # fmt: skip
    assert header["axes"][1] == {"path": "model.layers", "name": "layers", "labels": ["1", "2", "3"]}
    assert Trial.model_validate(header["base"]) == BASE
    assert Measure.model_validate(header["measure"]) == made.measure


def test_axes_of_a_planned_trial_are_json_scalars() -> None:
    made = grid(OPERATORS, LAYERS, over("training.clip", [None, 0.5]))
    for planned in made.trials():
        assert all(value is None or isinstance(value, str | int | float) for value in planned.axes.values())


# unions --------------------------------------------------------------------------------------------------------------


def cells(made: Grid) -> set[str]:
    return {planned.cell for planned in made.cells()}


def both() -> tuple[Grid, Grid]:
    return (
        Grid("shallow", BASE, [OPERATORS, over("model.layers", [1, 2])], seeds=range(2)),
        Grid("deep", BASE, [OPERATORS, over("model.layers", [2, 3])], seeds=range(2)),
    )


def test_a_union_has_the_cells_of_both_once() -> None:
    shallow, deep = both()
    union = shallow | deep
    assert cells(union) == cells(shallow) | cells(deep)
    assert union.header()["cells"] == 9
    assert union.header()["axes"][1]["labels"] == ["1", "2", "3"]
    assert len({planned.key for planned in union.trials()}) == len(list(union.trials())) == 18
    assert (union.name, union.named("all").name) == ("shallow-deep", "all")


def test_a_union_with_itself_is_itself() -> None:
    shallow, _ = both()
    assert cells(shallow | shallow) == cells(shallow)


def test_rules_of_a_union_count_in_their_own_part() -> None:
    shallow, deep = both()
    rules = [forbid(lambda trial: trial.model.layers == 2, reason="two")]
    union = Grid("ruled", BASE, shallow.axes, rules, range(2)) | deep
    assert union.header()["rules"] == [{"reason": "two", "count": 3}]
    assert union.header()["cells"] == 3 + 6


def test_an_axis_of_one_part_is_null_in_the_other() -> None:
    first = Grid("a", BASE, [OPERATORS], seeds=[0])
    second = Grid("b", BASE, [over("training.steps", [10, 20])], seeds=[0])
    found = [(planned.axes["operator"], planned.axes["steps"]) for planned in (first | second).cells()]
    assert found == [("softmax", None), ("SSA", None), ("Principled", None), (None, 10), (None, 20)]


def test_a_union_needs_one_set_of_seeds_one_measure_and_one_baseline() -> None:
    plain = Grid("a", BASE, [OPERATORS])
    with pytest.raises(SpecError, match="one seeds; 'a' has"):
        plain | Grid("b", BASE, seeds=[1])
    with pytest.raises(SpecError, match="one measure; 'a' has None"):
        plain | Grid("b", BASE, measure=Measure(name="mse"))
    with pytest.raises(SpecError, match="one baseline"):
        Grid("a", BASE, [OPERATORS], baseline={"operator": "SSA"}) | Grid(
            "b", BASE, [OPERATORS], baseline={"operator": "softmax"}
        )


def test_two_different_cells_with_one_label_are_refused() -> None:
    other = Grid("b", BASE.changed(model=BASE.model.changed(layers=9)), [OPERATORS])
    with pytest.raises(SpecError, match="two different cells called 'softmax'"):
        (Grid("a", BASE, [OPERATORS]) | other).header()


# at random -----------------------------------------------------------------------------------------------------------

AXES = st.lists(
    st.sampled_from(
        [
            OPERATORS,
            LAYERS,
            HEADS,
            over("operator.signals.count", [1, 2]),
            over("training.steps", [10, 20, 30]),
            zipped(over("model.width", [64, 32]), over("model.hidden", [256, 128])),
            one_at_a_time(over("training.clip", [1.0, None]), over("task.batch", [64, 32, 16])),
            over("operator.score.n.init", [2.0, 3.0], when=has("operator.score.n")),
        ]
    ),
    unique=True,
    max_size=4,
)


@given(AXES, st.integers(2, 3))
def test_every_trial_of_any_grid_reads_back_with_its_key(axes: list[Dimension], modulus: int) -> None:
    axes = [axis for axis in axes if axis.when is None or OPERATORS in axes]
    rule = forbid(lambda trial: trial.model.layers % modulus == 0 and trial.seed == 0, reason="at random")
    made = grid(LAYERS, *(axis for axis in axes if axis is not LAYERS), rules=[rule])
    planned = list(made.trials())
    assert len({one.key for one in planned}) == len(planned) == made.header()["trials"]
    assert {one.label: one.cell for one in planned}.keys() == set(labels(made))
    for one in planned[:5]:
        assert Trial.model_validate(json.loads(json.dumps(one.trial.data()))).key == one.key


def test_zipped_axes_that_say_the_same_speak_once() -> None:
    together = zipped(over("model.layers", [1, 2]), over("model.heads", [1, 2]))
    assert [planned.label for planned in grid(together).cells()] == ["layers=1", "layers=2"]
    apart = zipped(over("model.layers", [1, 2]), over("model.heads", [2, 4]))
    assert [planned.label for planned in grid(apart).cells()] == ["layers=1 · heads=2", "layers=2 · heads=4"]
