"""Axes: names, labels, and how they vary together."""

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st
from standin import PRINCIPLED, SSA, SSA_OPERATOR, Exponential, Number

from ablate.grid import Grid, SpecError, forbid, one_at_a_time, over, zipped
from ablate.grid.names import axis_names, require_slug


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


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        (lambda: over("operator.score.kind", ["exp"]), r"vary 'operator\.score' over \{\"kind\": \"exp\"\}"),
        (lambda: over("a..b", [1]), "field names joined by dots"),
        (lambda: over("", [1]), "field names joined by dots"),
        (lambda: over("a", []), "has no values"),
        (lambda: over("a", "abc"), r"a list of values; got 'abc', write \['abc'\]"),
        (lambda: over("a", 2), r"a list of values; got 2, write \[2\]"),
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


REFUSED_GRIDS: list[tuple[Callable[[], object], str]] = [
    *(
        (lambda name=name: over("a", [1], name=name), "named like a column in SQL")
        for name in ("select", "Order", "two words", "1st", "a-b", "", "β")
    ),
    *(
        (lambda name=name: require_slug(name), "lower-case letters and digits")
        for name in ("A", "a b", "-a", "a--b", "a/b", "", "ä")
    ),
    *(
        (
            lambda name=name: Grid("g", PRINCIPLED, [over("model.layers", [1, 2], name=name)]),
            "give the axis .* another name=",
        )
        for name in ("trial", "cell", "Seed")
    ),
    (lambda: Grid("g", PRINCIPLED, over("model.layers", [1])), "the axes of a grid are a list of over"),
    (lambda: Grid("g", PRINCIPLED, rules=[bool]), "the rules of a grid are a list of forbid"),
    (lambda: Grid("g", PRINCIPLED, baseline="softmax"), "baseline of a grid: {axis name: label}; 'g' has 'softmax'"),
    (lambda: Grid("g", PRINCIPLED, measure={"name": "mse"}), "measure of a grid: a Measure"),
    (lambda: Grid("g", PRINCIPLED, seeds=5), "seeds of a grid: a list of whole numbers"),
    (lambda: Grid("g", "trial"), "base of a grid: a spec"),
    (lambda: forbid(bool, reason=" "), "a rule says why"),
]


@pytest.mark.parametrize(("build", "words"), REFUSED_GRIDS)
def test_a_part_of_a_grid_without_meaning_is_refused(build: Callable[[], object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        build()
