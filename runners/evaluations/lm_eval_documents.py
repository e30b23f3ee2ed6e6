"""Checks of the documents of lm-evaluation-harness tasks, with errors that name the document.

The harness counts an answer that is none of the choices as wrong, whatever the model says, and only logs a warning.
Here it is refused before any request, and so is a document that the task's templates cannot render.
"""

from collections.abc import Mapping
from typing import Any, SupportsIndex

from grid.errors import SpecError
from grid.suggestions import suggest_name

_SPLITS = ("test_split", "validation_split", "training_split", "fewshot_split")


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


def task_problem(task: Any, error: Exception) -> SpecError | None:
    """Return the reason why a task over files cannot be built, or None if only its YAML file shows it."""
    config, data = task.config, getattr(task, "dataset", None)
    if config is None:
        return None
    name = f"the lm-eval task {config.task!r}"
    if data is None:
        return _data_problem(task, name)
    for field in _SPLITS:
        split = getattr(config, field)
        if split is not None and split not in data:
            return SpecError(
                f"{field} of {name} is {split!r} and its data have "
                f"{', '.join(data)}{suggest_name(str(split), list(data))}"
            )
    if config.test_split is None and config.validation_split is None:
        return SpecError(
            f"{name} has neither test_split nor validation_split; add test_split to its YAML file, one of "
            f"{', '.join(data)}"
        )
    if not len(task.eval_docs):
        return SpecError(f"{name} has no documents; repair its data, or process_docs")
    if not hasattr(task, "multiple_target"):
        return None
    document = task.eval_docs[0]
    if not _renders(task, document):
        return document_problem(task, error)
    task.multiple_target = isinstance(task.doc_to_target(document), list)
    choice = task.OUTPUT_TYPE == "multiple_choice" and config.doc_to_choice
    return _answer_problem(task, 0, document) if choice and right_answers(task, document) is None else None


def _data_problem(task: Any, name: str) -> SpecError | None:
    try:
        task.download(task.config.dataset_kwargs)
    except Exception as error:  # noqa: BLE001  (any error of the library)
        files = (task.config.dataset_kwargs or {}).get("data_files") or task.config.dataset_path
        return SpecError(
            f"the data of {name} cannot be read ({error_words(_root_cause(error))}); repair {files}, lines of JSON or "
            "the format of dataset_path"
        )
    return None


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
    """Write the error of another library on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _root_cause(error: BaseException) -> BaseException:
    """Return the root cause of an error."""
    while (before := error.__cause__) is not None:
        error = before
    return error
