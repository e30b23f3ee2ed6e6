"""Axes: names, labels, and how they vary together."""

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st
from standin import GRANULARITIES, PRINCIPLED, SSA, SSA_OPERATOR, Exponential, Number

from grid import Grid, SpecError, one_at_a_time, over, zipped
from grid.names import axis_names, require_slug


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


@given(
    st.lists(st.lists(st.sampled_from(["per", "init", "a", "b", "select"]), min_size=2, max_size=4), unique_by=tuple)
)
def test_names_are_always_different_unless_it_is_said(paths: list[list[str]]) -> None:
    wanted = [(".".join(path), None) for path in paths]
    try:
        names = axis_names(wanted)
    except SpecError:  # a path whose every tail is taken or reserved: said, see the next test
        return
    assert len({name.lower() for name in names}) == len(names)


def test_a_given_name_is_kept_and_the_others_go_round_it() -> None:
    assert axis_names([("a.size", None), ("b.c", "size")]) == ["a_size", "size"]
    with pytest.raises(SpecError, match=r"two axes are called 'x'.*give one another name="):
        axis_names([("a.b", "x"), ("a.c", "X")])


@pytest.mark.parametrize("name", ["select", "Order", "two words", "1st", "a-b", "", "β"])
def test_a_name_is_a_column(name: str) -> None:
    with pytest.raises(SpecError, match="named like a column in SQL"):
        over("model.layers", [1], name=name)


@pytest.mark.parametrize("name", ["A", "a b", "-a", "a--b", "a/b", "", "ä"])
def test_a_grid_has_a_name_for_files(name: str) -> None:
    with pytest.raises(SpecError, match="lower-case letters and digits"):
        require_slug(name)


def test_labels_come_from_specs_and_values() -> None:
    assert over("operator", [SSA_OPERATOR, PRINCIPLED]).labels == ("SSA", "Principled")
    assert over("operator.score", [Exponential(), SSA()]).labels == ("exponential", "ssa")
    assert over("a", [1, 0.5, 1e-5, True, None, "x", ("layer", "head")]).labels == (
        "1", "0.5", "1e-05", "true", "none", "x", "layer, head"
    )  # fmt: skip


def test_in_a_table_scalars_are_themselves_and_named_values_are_their_names() -> None:
    assert over("a", [1, 0.5, True, None, SSA()]).scalars == (1, 0.5, True, None, "ssa")
    assert over("a", [1, 2], labels=["low", "high"]).scalars == ("low", "high")


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        (lambda: over("operator.score.kind", ["exp"]), r"vary 'operator\.score' over \{\"kind\": \"exp\"\}"),
        (lambda: over("a..b", [1]), "field names joined by dots"),
        (lambda: over("", [1]), "field names joined by dots"),
        (lambda: over("a", []), "has no values"),
        (lambda: over("a", "abc"), r"got the text 'abc', write \['abc'\]"),
        (lambda: over("a", [1, 2], labels=["x"]), "got 1 labels for 2 values"),
        (lambda: over("a", [SSA(), SSA(n=Number(init=2))]), r"several values called 'ssa'; .* labels="),
        (lambda: zipped(), "at least one axis"),
        (lambda: zipped(over("a", [1, 2]), over("b", [1])), "equally many values; 'a' has 2, 'b' has 1"),
        (lambda: zipped(over("a", [1], when=bool)), "move the when= of 'a' to zipped"),
        (lambda: one_at_a_time(over("a", [1], when=bool)), "move the when= of 'a' to one_at_a_time"),
    ],
)
def test_an_axis_without_meaning_is_refused(axis: object, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        axis()  # type: ignore[operator]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_one_at_a_time_is_the_base_and_every_change_alone(sizes: list[int]) -> None:
    bundle = one_at_a_time(*(over(f"a{at}", range(size)) for at, size in enumerate(sizes)))
    assert len(bundle.choices) == len(set(bundle.choices)) == 1 + sum(size - 1 for size in sizes)
    assert all(sum(index > 0 for index in choice) <= 1 for choice in bundle.choices)


def test_bundles_nest() -> None:
    together = zipped(over("a", [1, 2, 3]), over("b", ["x", "y", "z"]))
    alone = one_at_a_time(together, over("c", [0, 1]))
    assert alone.choices == ((0, 0, 0), (1, 1, 0), (2, 2, 0), (0, 0, 1))


def test_axes_and_rules_are_lists_of_what_makes_them() -> None:
    with pytest.raises(SpecError, match=r"the axes of a grid are a list of over"):
        Grid("g", PRINCIPLED, over("model.layers", [1]))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"the rules of a grid are a list of forbid"):
        Grid("g", PRINCIPLED, rules=[bool])  # type: ignore[list-item]


def test_granularities_are_values_like_others() -> None:
    assert over("operator.gate.strength.per", GRANULARITIES).labels == GRANULARITIES


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"baseline": "softmax"}, "baseline of a grid: {axis name: label}; 'g' has 'softmax'"),
        ({"measure": {"name": "mse"}}, "measure of a grid: a Measure"),
        ({"seeds": 5}, "seeds of a grid: a list of whole numbers"),
        ({"base": "trial"}, "base of a grid: a spec"),
    ],
)
def test_a_part_of_the_wrong_kind_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=re.escape(words)):
        Grid(**{"name": "g", "base": PRINCIPLED, **fields})


@pytest.mark.parametrize("name", ["trial", "cell", "Seed"])
def test_an_axis_cannot_take_a_column_that_every_grid_has(name: str) -> None:
    with pytest.raises(SpecError, match=r"give the axis .* another name="):
        Grid(name="g", base=PRINCIPLED, axes=[over("model.layers", [1, 2], name=name)])
