"""What the documents of a task of lm-evaluation-harness must be, and the sentence for one that is something else.

The harness counts an answer beside all choices as wrong, whatever the model says, and warns in a log. Here it is
refused before anything is asked, and so is what its templates fail on, with the document's number.
"""

from collections.abc import Mapping
from typing import Any, SupportsIndex

from grid.errors import SpecError
from grid.suggestions import suggest_name

_SPLITS = ("test_split", "validation_split", "training_split", "fewshot_split")


def right_answers(task: Any, document: Any) -> list[int] | None:
    """Numbers of the choices of a multiple choice that are right, as the harness tells them; None where some are none.

    They are the target, or the text's where choices are different contexts of one target.
    """
    answer = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
    choices = task.doc_to_choice(document)
    if isinstance(answer, list) != bool(task.multiple_target):  # it takes all for what the first is
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
        SpecError: the document, and what it has.
    """
    if task.OUTPUT_TYPE != "multiple_choice" or not task.config.doc_to_choice or task.config.process_results:
        return
    for number, document in enumerate(task.eval_docs):
        if right_answers(task, document) is None:
            raise _beside(task, number, document)


def _beside(task: Any, number: int, document: Any) -> SpecError:
    field = "doc_to_text" if task.multiple_input else "doc_to_target"
    answer = getattr(task, field)(document)
    choices = task.doc_to_choice(document)
    has = f"number {answer}" if type(answer) is int else repr(answer)[:80]
    return SpecError(
        "the right answer is one of the choices, by its number from 0 or its text, or in every document by a list of "
        f"numbers; document {number} of the lm-eval task {task.config.task!r} has {has} and the "
        f"{len(choices)} choices {repr(choices)[:120]}: mend it, or {field}, which names a field or is a template"
    )


def unaskable(task: Any, error: Exception) -> SpecError:
    """What a task's templates fail on: its first document of which one cannot be filled in."""
    where = "a document"
    for number, document in enumerate(task.eval_docs):
        if not _filled(task, document):
            where = f"document {number}"
            break
    return SpecError(
        f"each document of a task is a question; {where} of the lm-eval task {task.config.task!r} is none "
        f"({said(error)}): mend it, or the templates in the YAML file"
    )


def _filled(task: Any, document: Any) -> bool:
    try:
        for part in (
            task.doc_to_text,
            task.doc_to_target,
            *([task.doc_to_choice] if task.config.doc_to_choice else []),
        ):
            part(document)
    except Exception:  # noqa: BLE001  (templates are the user's)
        return False
    return True


def unmade(task: Any, error: Exception) -> SpecError | None:
    """Why a task over files could not be made, as far as it has been made; None where its YAML file says it."""
    config, data = task.config, getattr(task, "dataset", None)
    if config is None:
        return None
    of = f"the lm-eval task {config.task!r}"
    if data is None:
        return _unread(task, of)
    for field in _SPLITS:
        split = getattr(config, field)
        if split is not None and split not in data:
            return SpecError(
                f"a split of a task is one of its data; {field} of {of} is {split!r} and the data have "
                f"{', '.join(data)}{suggest_name(str(split), list(data))}"
            )
    if config.test_split is None and config.validation_split is None:
        return SpecError(
            f"a task asks about the documents of test_split, or of validation_split; {of} names neither: add "
            f"test_split to its YAML file, one of {', '.join(data)}"
        )
    if not len(task.eval_docs):
        return SpecError(f"a task has a document or more; {of} has none: mend its data, or process_docs")
    if not hasattr(task, "multiple_target"):
        return None
    document = task.eval_docs[0]
    if not _filled(task, document):
        return unaskable(task, error)
    task.multiple_target = isinstance(task.doc_to_target(document), list)
    choice = task.OUTPUT_TYPE == "multiple_choice" and config.doc_to_choice
    return _beside(task, 0, document) if choice and right_answers(task, document) is None else None


def _unread(task: Any, of: str) -> SpecError | None:
    try:
        task.download(task.config.dataset_kwargs)
    except Exception as error:  # noqa: BLE001  (the library's, of which there are many)
        files = (task.config.dataset_kwargs or {}).get("data_files") or task.config.dataset_path
        return SpecError(
            f"data of a task are lines of JSON or what its dataset_path names, one document or more; those of {of} "
            f"cannot be read ({said(_first(error))}): mend {files}"
        )
    return None


def require_metrics(config: Mapping[str, Any], registry: Any) -> None:
    """Refuse a metric that `registry`, the harness's, does not have: it would be left out without a word.

    Raises:
        SpecError: the metric and the task.
    """
    listed = config.get("metric_list")
    for each in listed if isinstance(listed, list) and not config.get("process_results") else ():
        name = each.get("metric") if isinstance(each, Mapping) else None
        if isinstance(name, str) and registry.get_metric(name, each.get("hf_evaluate") is True) is None:
            raise SpecError(
                f"a metric is one of lm-eval's; {name!r} of the task {config.get('task')!r} is none"
                f"{suggest_name(name, list(registry.metric_registry))}: mend metric_list"
            )


def said(error: BaseException) -> str:
    """What another library's error says, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _first(error: BaseException) -> BaseException:
    """The error that led to `error`, as far as it is said to have."""
    while (before := error.__cause__) is not None:
        error = before
    return error
