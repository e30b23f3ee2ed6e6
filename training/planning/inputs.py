"""Inputs of trials, which are opened before any is trained.

Some faults are known only when the files are open: too few pairs for a tokenizer, or a sentence that is too long.
"""

from functools import lru_cache

from ablate.training.evaluations.evaluation import Evaluation, open_evaluations
from ablate.training.planning.task_laws import require_evaluation_laws, require_task_laws
from ablate.training.planning.tried_task import is_own, own_tasks
from ablate.training.tasks.task import Task


def check_inputs(task: Task, evaluations: tuple[Evaluation, ...]) -> None:
    """Open what they read; those of a user's own also keep the laws of `task_laws`.

    Raises whatever opening raises; SpecError is the fault of the spec.
    """
    for own in own_tasks(task):
        _keep_laws(own)
    task.open()
    open_evaluations(task, evaluations)
    for evaluation in filter(is_own, evaluations):
        _keep_evaluation_laws(evaluation, task)


_keep_laws = lru_cache(maxsize=256)(require_task_laws)  # cells of a grid share tasks; an error is not kept
_keep_evaluation_laws = lru_cache(maxsize=256)(require_evaluation_laws)
