"""A pydantic error becomes one sentence: where, what is expected, what came."""

import pytest
from pydantic import ValidationError
from standin import Trial

from ablate.grid import SpecError, over, spec_error

TRIAL = "execution, model, operator, placement, seed, task, training"

SAID = {
    "a type": ({"model": {"layers": "x"}}, "model.layers should be a valid integer, got 'x'"),
    "text for a number": (
        {"training": {"optimizer": {"kind": "adamw", "lr": "2e-3"}}},
        "training.optimizer.lr should be a valid number, got '2e-3'",
    ),
    "text for a whole number": ({"model": {"layers": "2"}}, "model.layers should be a valid integer, got '2'"),
    "missing": (
        {"operator": {"score": {"kind": "ssa", "n": {}}}},
        "operator.score.n.init is missing and has no default",
    ),
    "unknown inside": (
        {"operator": {"score": {"kind": "ssa", "n": {"init": 1, "pre": ()}}}},
        "operator.score.n: 'pre' is not a field of Number; it has init, learned, link, per; did you mean 'per'?",
    ),
    "unknown": ({"modle": {}}, f"'modle' is not a field of Trial; it has {TRIAL}; did you mean 'model'?"),
    "another library's name of a field of a part": (
        {"hidden_size": 2},
        f"'hidden_size' is not a field of Trial; it has {TRIAL}; did you mean 'model.width'?",
    ),
    "a rule of a part": ({"model": {"heads": 3}}, "model: heads divide the width; got 3 and 128"),
    "a kind": (
        {"operator": {"score": {"kind": "sas"}}},
        "operator.score: Score has no kind 'sas'; it has exponential, ssa; did you mean 'ssa'?",
    ),
    "several": (
        {"seed": "a", "model": {"layers": "b", "width": "c"}},
        "model.layers should be a valid integer, got 'b' (and 2 more)",
    ),
    "a name for a spec": (
        {"model": "gpt2"},
        "model takes a spec of class Model, got 'gpt2'; write gpt2()",
    ),
    "long": (
        {"training": {"clip": "x" * 500}},
        f"training.clip should be a valid number, got '{'x' * 27}...{'x' * 28}'",
    ),
}


@pytest.mark.parametrize(("data", "told"), SAID.values(), ids=SAID.keys())
def test_an_error_is_one_sentence(data: object, told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Trial.model_validate(data)
    assert str(spec_error(caught.value, "file.json, line 3")) == f"file.json, line 3: {told}"


def test_a_path_can_begin_further_out() -> None:
    with pytest.raises(ValidationError) as caught:
        Trial.model_validate({"model": {"layers": None}})
    assert str(spec_error(caught.value, "", under="base")) == "base.model.layers should be a valid integer, got None"


def test_an_axis_with_what_is_no_number_is_named() -> None:
    with pytest.raises(SpecError, match=r"axis 'training.lr': a spec holds finite numbers only; got nan"):
        over("training.lr", [1.0, float("nan")])
