"""A grid of a base, axes and seeds: cells, keys, order, labels, header, baseline, unions."""

import json
from collections.abc import Callable
from itertools import islice, product

import pytest
from hypothesis import given, strategies as st
from standin import PRINCIPLED, SOFTMAX, SSA_OPERATOR, Trial, headline
from standin_grid import BASE, HEADS, LAYERS, OPERATORS, grid, labels

from ablate.grid import Dimension, Grid, Measure, SpecError, cell_key, forbid, has, one_at_a_time, over, zipped


def test_axes_multiply() -> None:
    made = grid(LAYERS, HEADS)
    cells = [(planned.trial.model.layers, planned.trial.model.heads) for planned in made.cells()]  # type: ignore[attr-defined]
    assert cells == list(product([1, 2, 3], [2, 4]))
    assert (made.header()["cells"], made.header()["trials"]) == (6, 12)


def test_zipped_axes_vary_together() -> None:
    cells = grid(zipped(over("model.layers", [1, 2]), over("model.heads", [2, 4])), over("training.steps", [10, 20]))
    assert [(p.axes["layers"], p.axes["heads"], p.axes["steps"]) for p in cells.cells()] == [
        (1, 2, 10), (1, 2, 20), (2, 4, 10), (2, 4, 20)
    ]  # fmt: skip


def test_enumeration_sorted_by_seed_and_cell_is_execution_order() -> None:
    made = grid(OPERATORS, LAYERS, seeds=[1, 0])
    assert sorted(made.enumerate(), key=lambda planned: (-planned.seed, planned.cell)) == list(made.trials())


def test_the_first_trial_of_a_billion_cells_arrives_at_once() -> None:
    wide = [over(f"operator.{path}", [0.1 * n for n in range(10)]) for path in (
        "gate.strength.init", "normaliser.threshold.init", "margin.amplification.init", "readout.ground_value.init"
    )]  # fmt: skip
    more = [over("training.optimizer.lr", [0.1**n for n in range(1, 11)]), over("model.layers", range(1, 11))]
    rest = [over("training.steps", range(1, 11)), over("model.hidden", range(1, 11)), over("task.batch", range(1, 11))]
    first = list(islice(grid(*wide, *more, *rest).enumerate(), 3))
    assert [planned.seed for planned in first] == [0, 1, 0]


def test_labels_say_which_number_is_which_and_leave_out_what_does_not_vary() -> None:
    assert labels(grid(over("model.layers", [1]), HEADS, OPERATORS))[:2] == ["heads=2 · softmax", "heads=2 · SSA"]
    assert labels(headline())[0].startswith("strength_per=constant · threshold_per=constant")


def test_zipped_axes_that_say_the_same_speak_once() -> None:
    together = zipped(over("model.layers", [1, 2]), over("model.heads", [1, 2]))
    assert [planned.label for planned in grid(together).cells()] == ["layers=1", "layers=2"]
    apart = zipped(over("model.layers", [1, 2]), over("model.heads", [2, 4]))
    assert [planned.label for planned in grid(apart).cells()] == ["layers=1 · heads=2", "layers=2 · heads=4"]


def test_the_header_is_plain_json_with_every_promised_entry() -> None:
    made = grid(OPERATORS, LAYERS, baseline={"operator": "softmax", "layers": 1}, measure=Measure(name="mse"))
    header = made.header()
    assert json.loads(json.dumps(header)) == header
    assert list(header) == [
        "schema", "grid", "cells", "trials", "seeds", "axes", "rules", "baseline", "measure", "base", "controls"
    ]  # fmt: skip
    assert header["axes"][1] == {"path": "model.layers", "name": "layers", "labels": ["1", "2", "3"]}
    assert Trial.model_validate(header["base"]) == BASE
    assert Measure.model_validate(header["measure"]) == made.measure


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


@pytest.mark.parametrize("operator", ["softmax", "SSA", SOFTMAX, SSA_OPERATOR], ids=str)
def test_the_baseline_is_selected_by_label_or_value(operator: object) -> None:
    made = grid(OPERATORS, LAYERS, baseline={"operator": operator, "layers": "2"})
    found = next(p for p in made.cells() if p.cell == made.header()["baseline"])
    assert found.axes == {"operator": getattr(operator, "label", operator), "layers": 2}


def test_the_baseline_may_be_where_an_axis_does_not_apply() -> None:
    strength = over("operator.gate.strength.per", ["layer", "head"], when=has("operator.gate.strength"))
    made = grid(over("operator", [SOFTMAX, PRINCIPLED]), strength, baseline={"strength_per": None})
    assert made.header()["baseline"] == cell_key(Trial())


def test_baselines_have_the_levels_of_their_cells_on_the_other_axes() -> None:
    made = grid(OPERATORS, LAYERS, baseline={"operator": "SSA"})
    header, found = made.header(), {planned.cell: planned for planned in made.cells()}
    assert header["matched"] == ["layers"]
    assert header["baselines"].keys() == {cell for cell, planned in found.items() if planned.axes["operator"] != "SSA"}
    for cell, base in header["baselines"].items():
        assert found[base].axes == {**found[cell].axes, "operator": "SSA"}
    assert header["baseline"] in header["baselines"].values()


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
    assert cells(shallow | shallow) == cells(shallow)
    assert (union.name, union.named("all").name) == ("shallow-deep", "all")


def test_fields_of_a_union_are_changed_for_all_its_cells() -> None:
    shallow, deep = both()
    changed = (shallow | deep).changed(name="all", seeds=[7], baseline={"operator": "softmax", "layers": 3})
    assert {(planned.cell, planned.seed) for planned in changed.trials()} == {
        (cell, 7) for cell in cells(shallow | deep)
    }
    assert changed.header()["baseline"] in cells(deep) - cells(shallow)
    assert shallow.changed(base=BASE.changed(training=BASE.training.changed(steps=3))).base.training.steps == 3
    for made, fields in ((shallow | deep, {"base": BASE}), (shallow, {"seed": [1]})):
        with pytest.raises(SpecError, match=f"{next(iter(fields))}"):
            made.changed(**fields)


def test_an_axis_of_one_part_is_null_in_the_other() -> None:
    first = Grid("a", BASE, [OPERATORS], seeds=[0])
    second = Grid("b", BASE, [over("training.steps", [10, 20])], seeds=[0])
    found = [(planned.axes["operator"], planned.axes["steps"]) for planned in (first | second).cells()]
    assert found == [("softmax", None), ("SSA", None), ("Principled", None), (None, 10), (None, 20)]


def by_operator(name: str, baseline: str) -> Grid:
    return Grid(name, BASE, [OPERATORS], baseline={"operator": baseline})


PLAIN, DEEP = Grid("a", BASE, [OPERATORS]), BASE.changed(model=BASE.model.changed(layers=9))
NO_DEEP_SSA = forbid(lambda trial: trial.model.layers == 2 and trial.operator == SSA_OPERATOR, reason="none")  # type: ignore[attr-defined]
REFUSED: list[tuple[Callable[[], Grid], str]] = [
    *(
        (lambda baseline=baseline: grid(OPERATORS, LAYERS, baseline=baseline), told)
        for baseline, told in (
            ({"operatr": "SSA"}, "'g' names 'operatr', which is no axis; it has operator, layers"),
            ({"operator": "SSa"}, "; did you mean 'SSA'"),
            ({"operator": "SSA", "layers": 9}, "no cell operator='SSA', layers=9 .* near: 'SSA · layers=1', "),
        )
    ),
    (
        lambda: grid(OPERATORS, LAYERS, rules=[NO_DEEP_SSA], baseline={"operator": "SSA"}),
        "selects 'SSA · layers=1', .* of which 0 fit the cell 'softmax · layers=2'",
    ),
    (lambda: PLAIN | Grid("b", BASE, seeds=[1]), "'a' has seeds="),
    (lambda: PLAIN | Grid("b", BASE, measure=Measure(name="mse")), "'a' has measure=None"),
    (lambda: by_operator("a", "SSA") | by_operator("b", "softmax"), "different baselines"),
    (lambda: PLAIN | Grid("b", DEEP, [OPERATORS]), "two different cells called 'softmax'"),
]


@pytest.mark.parametrize(("build", "told"), REFUSED)
def test_what_has_no_meaning_is_refused(build: Callable[[], Grid], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        build().header()
