"""Inputs of trials, which are opened before any is trained.

Some faults are known only when the files are open: too few pairs for a tokenizer, or a sentence that is too long.
"""

from functools import lru_cache

from ablate.training.evaluations.evaluation import open_evaluations
from ablate.training.planning.module_laws import require_module_laws
from ablate.training.planning.task_laws import require_evaluation_laws, require_task_laws
from ablate.training.planning.tried_task import is_own, law_of, own_tasks
from ablate.training.trial import Trial


def check_inputs(trial: Trial) -> None:
    """Open what its task and evaluations read; those of a user's own also keep the laws of `task_laws`.

    Mixers and foreign backbones keep those of `module_laws`. Raises whatever opening raises; SpecError is the fault of
    the spec.
    """
    task, evaluations = trial.task, trial.evaluations
    for own in own_tasks(task):
        _keep_laws(own)
    task.open()
    open_evaluations(task, evaluations)
    for evaluation in filter(is_own, evaluations):
        with law_of(f"evaluation {evaluation.label!r}", "evaluation"):
            _keep_evaluation_laws(evaluation, task)
    if trial.attention() is None:
        with law_of(f"model {trial.model.label!r}", "module"):
            require_module_laws(trial)


_keep_laws = lru_cache(maxsize=256)(require_task_laws)  # cells of a grid share tasks; an error is not kept
_keep_evaluation_laws = lru_cache(maxsize=256)(require_evaluation_laws)
