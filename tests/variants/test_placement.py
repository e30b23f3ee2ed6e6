"""Which layers get the operator, and that one set of layers has one spelling."""

import pytest

from grid.errors import SpecError
from variants import Placement, integral, softmax, ssa

THERE = ssa()


def layers(placement: Placement, count: int) -> list[int]:
    return [layer for layer, operator in enumerate(placement.operators(THERE, count)) if operator == THERE]


@pytest.mark.parametrize(
    ("placement", "count", "expected"),
    [
        (Placement(share=0.5), 20, range(10, 20)),  # paper 002
        (Placement(share=0.5), 22, range(11, 22)),
        (Placement(share=0.5, side="bottom"), 22, range(11)),
        (Placement(share=0.25), 22, range(16, 22)),  # 5.5, rounded up
        (Placement(share=0.3), 10, range(7, 10)),  # not 4, although 0.3 * 10 > 3 in binary
        (Placement(), 7, range(7)),
        (Placement(side="inner"), 7, range(1, 6)),  # Cog
        (Placement(side="inner"), 3, [1]),
        (Placement(side="alternate"), 7, [0, 2, 4, 6]),
        (Placement(side="alternate"), 6, [1, 3, 5]),
        (Placement(side="alternate"), 1, [0]),
    ],
    ids=lambda value: value.label if isinstance(value, Placement) else str(value),
)
def test_a_placement_selects_its_layers(placement: Placement, count: int, expected: object) -> None:
    assert layers(placement, count) == list(expected)
    assert layers(placement.on(count), count) == list(expected)


def test_the_other_layers_get_the_rest() -> None:
    rest = integral(2)
    found = Placement(side="inner", rest=rest).operators(THERE, 4)
    assert found == (rest, THERE, THERE, rest)
    assert Placement(side="alternate").operators(THERE, 3) == (THERE, softmax().changed(name=""), THERE)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 13])
def test_placements_of_the_same_layers_are_one_spec(count: int) -> None:
    every = [Placement(side=side, share=share) for side in ("top", "bottom") for share in (0.01, 0.3, 0.5, 0.7, 1)]
    every += [Placement(side="alternate"), *([Placement(side="inner")] if count > 2 else [])]
    exact = [placement.on(count) for placement in every]
    for one in exact:
        assert one.on(count) == one
        for other in exact:
            assert (one == other) is (layers(one, count) == layers(other, count))


def test_an_inner_placement_of_two_layers_is_refused() -> None:
    for count in (1, 2):
        with pytest.raises(ValueError, match=f"all layers but the first and the last; {count} layers have none"):
            Placement(side="inner").on(count)


@pytest.mark.parametrize(
    "placement", [Placement(share=0.9, rest=integral(2)), Placement(share=0.01, rest=integral(2))], ids=["most", "few"]
)
def test_a_rest_without_layers_is_refused(placement: Placement) -> None:
    with pytest.raises(ValueError, match=f"share {placement.share:g} of 1 layers is all of them"):
        placement.on(1)
    with pytest.raises(ValueError, match="side='alternate' of 1 layers is all of them"):
        Placement(side="alternate", rest=integral(2)).on(1)


@pytest.mark.parametrize("side", ["inner", "alternate"])
def test_a_share_that_says_nothing_is_refused(side: str) -> None:
    with pytest.raises(SpecError, match=rf"side='{side}' says which layers, share=0.5 says nothing; leave it out"):
        Placement().changed(side=side, share=0.5)


def test_labels_tell_placements_apart() -> None:
    sides = [Placement(), Placement(share=0.5), Placement(share=0.5, side="bottom"), Placement(side="inner")]
    labels = [placement.label for placement in (*sides, Placement(side="alternate"))]
    assert labels == ["all layers", "top 50%", "bottom 50%", "inner layers", "every second layer"]


def test_a_share_however_small_is_a_layer() -> None:
    assert Placement(share=1e-12).chosen(4) == range(3, 4)
