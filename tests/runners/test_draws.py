"""Numbers that follow from a seed and a place alone: the published generator, and the promised distributions."""

import math

import pytest
import torch

from ablate.training.tasks.counter_rng import Draws
from ablate.variants.model.seeding import generator

MASK = (1 << 64) - 1


def splitmix64(start: int, count: int) -> list[int]:
    """The generator as its authors wrote it, in plain integers."""
    words = []
    for _ in range(count):
        start = (start + 0x9E3779B97F4A7C15) & MASK
        z = ((start ^ (start >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        words.append(z ^ (z >> 31))
    return words


def test_splitmix64_is_the_published_one() -> None:
    """The first outputs for the seed 1234567, as its authors give them."""
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_words_are_those_of_splitmix64_and_go_on_from_call_to_call() -> None:
    draws = Draws(7, "data", 3)
    found = torch.cat([draws.words(2, 3).flatten(), draws.words(5)])
    wanted = splitmix64(generator(7, "data", 3).initial_seed(), 11)
    assert [word & MASK for word in found.tolist()] == wanted


def test_words_computed_ahead_are_the_same() -> None:
    """Too few, as many as are drawn, and more."""
    wanted = Draws(7).words(9)
    for ahead in (2, 7, 30):
        draws = Draws(7)
        first = draws.words(2)
        draws.compute_ahead(ahead)
        assert torch.equal(torch.cat([first, *(draws.words(count) for count in (3, 4))]), wanted)


def test_words_at_places_are_those_that_are_drawn_there() -> None:
    drawn = Draws(7, "data", 3).words(50)
    places = torch.tensor([[49, 0, 7], [7, 1, 2]])
    assert torch.equal(Draws(7, "data", 3).words_at(places), drawn[places])


def test_uniform_numbers_fill_the_unit_interval() -> None:
    drawn = Draws(0, "u").uniform(200_000)
    assert drawn.dtype == torch.float64
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = torch.histc(drawn, 50, 0, 1)
    chi_square = float(((counts - 4000) ** 2 / 4000).sum())
    assert chi_square < 85  # 49 degrees of freedom: 1 in 1,000 is above
    lagged = torch.corrcoef(torch.stack((drawn[:-1], drawn[1:])))[0, 1]
    assert abs(float(lagged)) < 4 / math.sqrt(200_000)


def test_normal_numbers_are_standard_normal() -> None:
    drawn = Draws(0, "n").normal(200_000).double()
    error = 1 / math.sqrt(200_000)
    assert abs(float(drawn.mean())) < 4 * error
    assert abs(float(drawn.square().mean()) - 1) < 4 * math.sqrt(2) * error
    assert abs(float((drawn**4).mean()) - 3) < 4 * math.sqrt(96) * error
    assert float((drawn.abs() < 1).double().mean()) == pytest.approx(math.erf(1 / math.sqrt(2)), abs=4 * 0.5 * error)
