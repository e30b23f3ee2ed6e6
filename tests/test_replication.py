"""Every spec that docs/replication.md names exists and can be built as written."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import ablate
from ablate.runners.optimisers import Training, recipes
from ablate.variants.model import named_backbones

PAGE = (Path(__file__).parent.parent / "docs" / "replication.md").read_text(encoding="utf-8")
WORDS = sorted(set(re.findall(r"`([^`]+)`", PAGE)))
CALLS = [word for word in WORDS if re.match(r"[A-Za-z_]\w*\(.*\)$", word) and "..." not in word]
CHANGES = [word for word in WORDS if word.startswith(".changed(")]
RECIPES = sorted({name for line in re.findall(r".*of the recipes", PAGE) for name in re.findall(r"`(\w+)`", line)})
NAMES = {**vars(named_backbones), **{name: getattr(ablate, name) for name in dir(ablate) if not name.startswith("_")}}


@pytest.mark.parametrize("call", CALLS)
def test_a_spec_is_built_as_the_page_writes_it(call: str) -> None:
    assert eval(call, dict(NAMES)) is not None


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_fits_the_model_before_it(change: str) -> None:
    assert eval(f"icl(){change}", dict(NAMES)).key != named_backbones.icl().key


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_exists(name: str) -> None:
    make: Callable[[], Training] = getattr(recipes, name)
    assert isinstance(make(), Training)


def test_the_page_covers_every_recipe_and_every_named_operator_of_a_paper() -> None:
    made = {name for name, each in vars(recipes).items() if getattr(each, "__module__", "") == recipes.__name__}
    assert set(RECIPES) == made - {"scaled", "nanogpt"}
    operators = {name for name, each in ablate.catalogue().items() if each.paper != "baseline"}
    assert not {name for name in operators if not re.search(rf"`{name}\(", PAGE)}
