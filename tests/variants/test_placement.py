"""Which layers get the operator, and that one set of layers has one spelling."""

import pytest

from ablate.variants import Placement, integral, ssa

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


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 13])
def test_placements_of_the_same_layers_are_one_spec(count: int) -> None:
    every = [Placement(side=side, share=share) for side in ("top", "bottom") for share in (0.01, 0.3, 0.5, 0.7, 1)]
    every += [Placement(side="alternate"), *([Placement(side="inner")] if count > 2 else [])]
    exact = [placement.on(count) for placement in every]
    for one in exact:
        assert one.on(count) == one
        for other in exact:
            assert (one == other) is (layers(one, count) == layers(other, count))


@pytest.mark.parametrize(
    "placement", [Placement(share=0.9, rest=integral(2)), Placement(share=0.01, rest=integral(2))], ids=["most", "few"]
)
def test_a_rest_without_layers_is_refused(placement: Placement) -> None:
    with pytest.raises(ValueError, match=f"share {placement.share:g} of 1 layers is all of them"):
        placement.on(1)
    with pytest.raises(ValueError, match="side='alternate' of 1 layers is all of them"):
        Placement(side="alternate", rest=integral(2)).on(1)
