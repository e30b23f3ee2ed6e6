"""`ablate` is one import for every public name, and loads what is asked for only."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import ablate
from ablate import ROOMS, store
from ablate.runners.provenance.specfile import load_spec_file


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_of_a_room_is_in_ablate(room: str) -> None:
    module = importlib.import_module(f"ablate.{room}")
    assert set(module.__all__) <= set(dir(ablate))
    for name in module.__all__:
        assert getattr(ablate, name) is getattr(module, name)


def test_every_public_name_of_the_store_is_documented() -> None:
    assert [name for name in dir(store) if not getattr(store, name).__doc__] == []


def test_ablate_has_no_other_names() -> None:
    public = {name for room in ROOMS for name in importlib.import_module(f"ablate.{room}").__all__}
    assert set(dir(ablate)) == public
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ablate.nothing


def test_a_grid_is_imported_without_torch() -> None:
    program = "import sys; from ablate import Campaign, Grid, over; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


@pytest.mark.parametrize(("name", "kind"), [("MultipleChoice", "multiple_choice"), ("LongContext", "long_context")])
def test_what_left_is_named_with_what_replaces_it(name: str, kind: str, tmp_path: Path) -> None:
    assert not hasattr(ablate, name)
    for home in ("ablate", "ablate.runners", "runners", "runners.evaluations"):
        (tmp_path / "spec.py").write_text(f"from {home} import {name}\n")
        with pytest.raises(ablate.SpecError, match="LmEval"):
            load_spec_file(tmp_path / "spec.py")
    with pytest.raises(ValueError, match=f"{kind}.*LmEval"):
        ablate.Trial.model_validate({"evaluations": [{"kind": kind}]})
