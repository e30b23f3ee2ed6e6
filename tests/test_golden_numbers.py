"""Results keep their verdicts until a version is raised, so every edit that changes a number must raise one."""

import pytest
from golden_trials import is_ours, measure, stored, trials, versions
from torch import Tensor

from ablate.grid.spec import Choice, Spec
from ablate.training.trial import Trial
from ablate.variants import SSA
from ablate.variants.links import LINKS
from ablate.variants.paths.choose import PATHS

TRIALS: dict[str, Trial] = dict(trials())
STORED = stored()
TOLERANCE = 1e-6
"""Bound of a difference, relative to numbers above 1. Machines differ by the rounding of float64 over 20 steps."""


def differing(numbers: dict[str, float], kept: dict[str, float]) -> dict[str, tuple[float | None, float | None]]:
    """Return the numbers that differ, by name."""
    found = {name: (kept.get(name), numbers.get(name)) for name in kept.keys() | numbers.keys()}
    return {
        name: (before, now)
        for name, (before, now) in found.items()
        if before is None or now is None or abs(before - now) > TOLERANCE * max(1.0, abs(before))
    }


def raised(trial: Trial) -> dict[str, str]:
    return {name: value for name, value in versions(trial).items() if value != "1"}


def check(name: str, trial: Trial) -> None:
    assert name in STORED, "`make golden` stores the numbers of a new trial"
    if STORED[name]["versions"] == raised(trial):
        changed = differing(measure(trial), STORED[name]["numbers"])
        assert not changed, f"an edit changed numbers; raise `version` of one of {sorted(versions(trial))}"


@pytest.mark.parametrize("name", TRIALS)
def test_numbers_change_with_a_version_only(name: str) -> None:
    check(name, TRIALS[name])


def test_every_stored_trial_is_still_trained() -> None:
    assert STORED.keys() == TRIALS.keys(), "a trial became invalid, or `make golden` is to store a new one"


def test_numbers_of_every_raised_version_are_stored() -> None:
    old = [name for name, trial in TRIALS.items() if STORED[name]["versions"] != raised(trial)]
    assert not old, "`make golden` stores the numbers of raised versions"


def test_an_edited_formula_fails_until_its_version_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    log_score = SSA.log_score

    def edited(self: SSA, a: Tensor, *, n: Tensor, b: Tensor) -> Tensor:
        return log_score(self, a, n=n, b=b) * 1.0001

    monkeypatch.setattr(SSA, "log_score", edited)
    name = "operator ssa"
    with pytest.raises(AssertionError, match="Score ssa"):
        check(name, TRIALS[name])
    monkeypatch.setattr(SSA, "version", 2)
    check(name, TRIALS[name])
    assert differing(measure(TRIALS[name]), STORED[name]["numbers"])
    check("operator softmax", TRIALS["operator softmax"])


ELSEWHERE = {"Evaluation lm_eval", "Evaluation minimal_pairs", "Experiment command"}
ELSEWHERE |= {"Task distillation", "Teacher finished_trial", "Teacher hugging_face_model"}
ELSEWHERE |= {"Tokenizer tokenizer_file", "Tokenizer token_ids"}
"""Choices that need files, packages or other trials; their own tests compare with an independent source."""


def test_the_trials_use_every_choice_link_and_path() -> None:
    used = set[str]().union(*(versions(trial) for trial in TRIALS.values()))
    choices = {each.code_name() for each in _below(Choice) if "kind" in each.model_fields and is_ours(each)}
    links, paths = {f"Link {name}" for name in LINKS}, {f"Path {path.name}" for path in PATHS}
    assert choices | links <= used | ELSEWHERE
    assert not ELSEWHERE & used
    assert paths & used == {"Path reference"}


def _below(cls: type[Spec]) -> set[type[Spec]]:
    return set(cls.__subclasses__()).union(*(_below(each) for each in cls.__subclasses__()))
