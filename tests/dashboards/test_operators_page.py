"""The page of operators: every one opens, sliders move weights, and what makes no sense is a sentence."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from synthetic import write_campaign, write_grid

from ablate.dashboards.app.engine import shown_of
from ablate.dashboards.app.page import PageView, SlotContent
from ablate.dashboards.app.pages.operators import LOGITS, OPERATORS, OperatorsAddress
from ablate.dashboards.data.grid_context import campaign_styles
from ablate.grid import Grid, over
from ablate.runners import LinearFunctions, Training, Trial
from ablate.runners.catalogue.operator_maths import OperatorMaths
from ablate.store import Store
from ablate.variants import gpt2, principled, softmax, ssa
from ablate.variants.papers.catalogue import catalogue

ROW = [float(part) for part in LOGITS.split(",")]
SLOTS = {slot.name: slot for slot in OPERATORS.slots}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    grid = Grid(
        name="real",
        base=Trial(
            operator=softmax(),
            model=gpt2(layers=1, heads=2, width=32, max_positions=256),
            task=LinearFunctions(points=5),
            training=Training(steps=2),
        ),
        axes=[
            over(
                "operator",
                [softmax(), ssa(n=2.0), ssa(n=3.0), principled()],
                labels=["softmax", "SSA 2", "SSA 3", "Principled"],
            )
        ],
        seeds=range(1),
    )
    place = tmp_path_factory.mktemp("operators") / "runs"
    write_grid(place, grid)
    return place


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[Store]:
    with Store.open(root) as opened:
        yield opened


Show = Callable[..., SlotContent]


@pytest.fixture
def show(store: Store) -> Show:
    """Return the content of a slot for fields of the address."""

    def make(slot: str, **fields: object) -> SlotContent:
        return shown_of(SLOTS[slot], _view(store, **fields))

    return make


def _view(store: Store, **fields: object) -> PageView:
    address = OperatorsAddress.model_validate(fields)
    return PageView("runs", store, address, campaign_styles(store), None, OperatorMaths())


@pytest.mark.parametrize("name", catalogue())
def test_every_named_operator_opens(name: str, show: Show, store: Store) -> None:
    for slot in SLOTS:
        shown = show(slot, operator=name)
        assert shown.figure is not None or shown.parts or shown.columns or shown.message == "It has no numbers."
    weights = show("weights", operator=name)
    assert weights.data["weight"].is_finite().all()
    text = str(show("formula", operator=name).parts[0])
    assert all(f"Code({part.kind!r})" in text for part in _parts(name))
    sliders = [each for each in OPERATORS.controls(_view(store, operator=name)) if each.kind == "slider"]
    shown_numbers = show("numbers", operator=name).data
    assert len(sliders) == (
        shown_numbers.filter(shown_numbers["here"] != "no slider").height if shown_numbers.width else 0
    )


def _parts(name: str) -> list[Mapping[str, str]]:
    return list(OperatorMaths().describe(name, {}).parts)  # type: ignore[arg-type]


def test_bars_are_the_weights_and_dashes_softmax(show: Show) -> None:
    shown = show("weights", operator="ssa", numbers=("score.n=2", "score.b=0.5"))
    score = [(1 + 0.5 * abs(z)) ** (2 if z >= 0 else -2) for z in ROW]
    assert shown.data["weight"].to_list() == pytest.approx([each / sum(score) for each in score], abs=1e-9)
    assert shown.figure is not None
    bars, dashes = shown.figure.data
    assert list(bars.y) == shown.data["weight"].to_list()
    assert list(dashes.y) == shown.data["softmax"].to_list()
    assert shown.data["logit"].to_list() == ROW


def test_what_does_not_sum_to_one_is_said(show: Show) -> None:
    shown = show("weights", operator="principled_ground", numbers=("normaliser.threshold=1",))
    assert "not to 1; the ground state has " in shown.caption
    assert shown.data.filter(shown.data["key"].is_null())["name"].to_list() == ["ground state"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"operator": "<script>"}, "There is no operator '<script>'"),
        *(({"logits": each}, "finite numbers") for each in ("1", "a, b", "1, nan", ",".join(["1"] * 65), "<script>")),
        ({"operator": "grid:none"}, "has no operator 'grid:none'; it has grid:"),
        ({"operator": "ssa", "numbers": ("score.n",)}, "takes name=value"),
        ({"operator": "ssa", "numbers": ("score.n=x",)}, "finite numbers; got 'x'"),
        ({"operator": "ssa", "numbers": ("score.n=nan",)}, "finite numbers"),
        ({"operator": "ssa", "numbers": ("score.n=0",)}, "is in [1, inf]; got 0"),
        ({"operator": "ssa", "numbers": ("beta=1",)}, "has no number 'beta'; it has score.n, score.b"),
        ({"operator": "ssa", "arguments": ("q=1",)}, "sa has no argument 'q'"),
    ],
)
def test_an_address_that_makes_no_sense_is_a_sentence(fields: dict[str, object], words: str, show: Show) -> None:
    for slot in ("weights", "score"):
        assert words in show(slot, **fields).message


def test_operators_of_the_grids_are_there_each_once(store: Store, show: Show) -> None:
    chosen, *_ = OPERATORS.controls(_view(store))
    own = [value for value in chosen.options if value.startswith("grid:")]
    assert len(own) == 4
    assert len(set(own)) == 4
    assert list(chosen.options)[4:] == list(catalogue())
    two = next(name for name in own if name.startswith("grid:SSA"))
    assert show("weights", operator=two).data["weight"].is_finite().all()
    assert show("numbers", operator=two).data["number"].to_list() == ["score.n", "score.b"]
    assert chosen.resets == ("arguments", "numbers")


def test_an_operator_of_a_grid_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    write_campaign(tmp_path / "runs", operators=("softmax", "Mine"), seeds=range(1), steps=2)
    with Store.open(tmp_path / "runs") as opened:
        assert shown_of(SLOTS["weights"], _view(opened, operator="grid:Mine")).message


def test_an_operator_whose_weights_are_those_of_softmax_says_so(show: Show) -> None:
    assert "softmax" in show("weights", operator="value_bias").message
    assert show("weights").message == ""
