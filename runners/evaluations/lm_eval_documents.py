"""Checks of the documents of lm-evaluation-harness tasks, with errors that name the document.

The harness counts an answer that is none of the choices as wrong, whatever the model says, and only logs a warning.
Here it is refused before any request, and so is a document that the task's templates cannot render.
"""

from collections.abc import Mapping
from typing import Any, SupportsIndex

from grid.errors import SpecError
from grid.suggestions import suggest_name


def right_answers(task: Any, document: Any) -> list[int] | None:
    """Return the numbers of the right choices, as the harness finds them, or None if an answer is no choice.

    The answer is the target, or the text if choices are different contexts of one target.
    """
    answer = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
    choices = task.doc_to_choice(document)
    if isinstance(answer, list) != bool(task.multiple_target):  # the first document sets the kind for all
        return None
    if isinstance(answer, str):
        return [choices.index(answer)] if answer in choices else None
    numbers = answer if isinstance(answer, list) else [answer]
    if not all(isinstance(each, SupportsIndex) and 0 <= each.__index__() < len(choices) for each in numbers):
        return None
    return [each.__index__() for each in numbers] or None


def require_answers(task: Any) -> None:
    """Refuse a multiple choice whose right answer is none of the choices.

    Raises:
        SpecError: names the document and its answer.
    """
    if task.OUTPUT_TYPE != "multiple_choice" or not task.config.doc_to_choice or task.config.process_results:
        return
    for number, document in enumerate(task.eval_docs):
        if right_answers(task, document) is None:
            raise _answer_problem(task, number, document)


def _answer_problem(task: Any, number: int, document: Any) -> SpecError:
    field = "doc_to_text" if task.multiple_input else "doc_to_target"
    answer = getattr(task, field)(document)
    choices = task.doc_to_choice(document)
    has = f"number {answer}" if type(answer) is int else repr(answer)[:80]
    return SpecError(
        "the right answer is the number from 0 or the text of a choice, or in every document a list of numbers; "
        f"document {number} of the lm-eval task {task.config.task!r} has {has} and the {len(choices)} choices "
        f"{repr(choices)[:120]}; repair it, or {field}"
    )


def document_problem(task: Any, error: Exception) -> SpecError:
    """Return the error for the first document that the task's templates cannot render."""
    where = "a document"
    for number, document in enumerate(task.eval_docs):
        if not _renders(task, document):
            where = f"document {number}"
            break
    return SpecError(
        f"{where} of the lm-eval task {task.config.task!r} cannot be rendered ({error_words(error)}); repair it, or "
        "the templates in the YAML file"
    )


def _renders(task: Any, document: Any) -> bool:
    try:
        for part in (
            task.doc_to_text,
            task.doc_to_target,
            *([task.doc_to_choice] if task.config.doc_to_choice else []),
        ):
            part(document)
    except Exception:  # noqa: BLE001  (templates are user code)
        return False
    return True


def require_metrics(config: Mapping[str, Any], registry: Any) -> None:
    """Refuse a metric that is missing in the harness's `registry`, which the harness silently leaves out.

    Raises:
        SpecError: names the metric and the task.
    """
    listed = config.get("metric_list")
    for each in listed if isinstance(listed, list) and not config.get("process_results") else ():
        name = each.get("metric") if isinstance(each, Mapping) else None
        if isinstance(name, str) and registry.get_metric(name, each.get("hf_evaluate") is True) is None:
            raise SpecError(
                f"lm-eval has no metric {name!r}, of the task {config.get('task')!r}"
                f"{suggest_name(name, list(registry.metric_registry))}; repair metric_list"
            )


def error_words(error: BaseException) -> str:
    """Write the root cause of an error of another library on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
