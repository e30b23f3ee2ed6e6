"""A pydantic error becomes one sentence: where, what is expected, what came."""

import re

import pytest
from pydantic import ValidationError
from standin import Trial

from ablate.grid import SpecError, over, spec_error

ADAMW = {"kind": "adamw", "lr": "2e-3"}
WRONG = [
    ({"model": {"layers": "x"}}, "model.layers"),
    ({"training": {"optimizer": ADAMW}}, "training.optimizer.lr"),
    ({"operator": {"score": {"kind": "ssa", "n": {}}}}, "operator.score.n.init"),
    ({"operator": {"score": {"kind": "ssa", "n": {"init": 1, "pre": ()}}}}, "operator.score.n: 'pre'.*'per'"),
    ({"modle": {}}, "'modle' .*'model'"),
    ({"hidden_size": 2}, "'hidden_size' .*'model.width'"),  # another library's name of a field of a part
    ({"model": {"heads": 3}}, "model: .*3 and 128"),
    ({"operator": {"score": {"kind": "sas"}}}, "operator.score: .*'sas'.*'ssa'"),
    ({"seed": "a", "model": {"layers": "b", "width": "c"}}, "model.layers .*'b' .*2 more"),
    ({"model": "gpt2"}, "model .*'gpt2'"),
    ({"training": {"clip": "x" * 500}}, "training.clip .*'x{27}...x{28}'"),
]


@pytest.mark.parametrize(("data", "named"), WRONG)
def test_an_error_names_the_field_and_what_came(data: object, named: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Trial.model_validate(data)
    assert re.fullmatch(f"file.json, line 3: {named}.*", str(spec_error(caught.value, "file.json, line 3")))


def test_a_path_can_begin_further_out() -> None:
    with pytest.raises(ValidationError) as caught:
        Trial.model_validate({"model": {"layers": None}})
    assert str(spec_error(caught.value, "", under="base")) == "base.model.layers should be a valid integer, got None"


def test_an_axis_with_what_is_no_number_is_named() -> None:
    with pytest.raises(SpecError, match=r"axis 'training.lr': a spec holds finite numbers only; got nan"):
        over("training.lr", [1.0, float("nan")])
