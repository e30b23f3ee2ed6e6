"""Writes docs/tasks.md and its pictures from the code; `python -m runners.catalogue.tasks_page`."""

from pathlib import Path

from runners.catalogue.choice_page import contents, part_sections, section
from runners.catalogue.evaluation_drawings import evaluation_picture
from runners.catalogue.explain_choice import explain_choice, find_choice, is_ours, kinds
from runners.catalogue.markdown import write_files
from runners.catalogue.materials import materials
from runners.catalogue.task_drawings import task_picture
from runners.output import write

INTRO = """# Tasks and evaluations

Generated from the code by `python -m runners.catalogue.tasks_page`; edit the docstrings, not this page. In a terminal,
`ablate tasks NAME` says the same.

A **task** is what a trial learns: it draws training batches by seed and step, says the loss, and measures on a sample
of its own, the same for all models and seeds. An **evaluation** is what a model is judged by beside its task:

```python
Trial(task=LinearFunctions(), evaluations=(DeviantInputs(), BoundaryValues()), ...)
```

Rows named `predictor.name` are those of reference predictors, on the same items. Points and numbers of positions are
those of the spec that is written here; every field is part of the trial's key, unless it says otherwise. Pictures are
drawn from sequences that the task itself makes, or that the evaluation itself shows to a model; text is a few sentences
of the page's own, cut into bytes: ␣ is a space, ⏎ a line break, ⊣ the end of a document, ▢ the mask.
"""


def page() -> dict[str, str]:
    """Every file of the documentation of tasks and evaluations, by its path below docs/."""
    rows = [row for row in kinds("task", "evaluation") if is_ours(find_choice(row.name, row.of)[1])]
    found = [explain_choice(row.name, row.of) for row in rows]
    files, parts = {}, [INTRO, *contents(found)]
    with materials() as folder:
        for each in found:
            drawn = task_picture if each.of == "task" else evaluation_picture
            files[f"tasks/{each.name}.svg"] = drawn(each.name, folder)
    for of, title in (("task", "Tasks"), ("evaluation", "Evaluations")):
        parts.append(f"## {title}\n")
        parts += [section(each, "tasks") for each in found if each.of == of]
    parts += part_sections(found)
    return {"tasks.md": "\n".join(parts), **files}


def write_page(docs: Path) -> int:
    """Write every file below `docs` and remove pictures of kinds that are gone; how many files there are."""
    return write_files(docs, "tasks", page())


if __name__ == "__main__":
    write(f"docs/tasks.md and its pictures: {write_page(Path('docs'))} files")
