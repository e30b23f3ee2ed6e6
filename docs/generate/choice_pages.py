"""Pages of tasks, evaluations, probes and training."""

from collections.abc import Sequence
from inspect import getdoc

import example_heads
from markdown import code_table, escape, fill_template, table, write_facts
from probe_pictures import draw_heads, draw_probe
from task_pictures import PICTURES as TASKS, draw_task

from ablate.grid import Spec
from ablate.training.catalogue.choice_words import (
    FIELD_HEADINGS,
    FieldRow,
    field_rows,
    spec_line,
)
from ablate.training.catalogue.explain_choice import (
    explain_choice,
    find_choice,
    is_ours,
    kinds,
    make_fixture_files,
)
from ablate.training.catalogue.explanation import Explanation
from ablate.training.optimisers.optimiser import Optimiser
from ablate.training.optimisers.schedules import Schedule
from ablate.training.optimisers.training_config import Training
from ablate.training.probes import Probe, Probing
from ablate.training.trial import Execution


def make_probes_page() -> dict[str, str]:
    """Make the page of probes and its pictures, by path below docs/."""
    probes = _explain_all("probe")
    at_divergence = [each.name for each in probes if Probe.members()[each.name].at_divergence]
    text = fill_template(
        "probes",
        {
            "at_divergence": " and ".join(f"`{name}`" for name in at_divergence),
            "probing": code_table(FIELD_HEADINGS, field_rows(Probing)),
            "heads": (example_heads.__doc__ or "").partition("\n\n")[2].strip("\n"),
            "contents": _contents("probe", probes),
            "sections": "\n".join(_section(each, "probes") for each in probes),
        },
    )
    pictures = {f"probes/{each.name}.svg": draw_probe(each.name) for each in probes}
    return {"probes.md": text, "probes/heads.svg": draw_heads(), **pictures}


def make_tasks_page() -> dict[str, str]:
    """Make the page of tasks and evaluations and its pictures, by path below docs/."""
    tasks, evaluations = _explain_all("task"), _explain_all("evaluation")
    with make_fixture_files() as folder:
        files = {f"tasks/{each.name}.svg": draw_task(each.name, folder) for each in tasks}
        drawn = {name: spec_line(picture.make_task(folder), folder) for name, picture in TASKS.items()}
    text = fill_template(
        "tasks",
        {
            "contents": f"{_contents('task', tasks)}\n{_contents('evaluation', evaluations)}",
            "tasks": "\n".join(_section(each, "tasks", drawn[each.name]) for each in tasks),
            "evaluations": "\n".join(_section(each, "tasks") for each in evaluations),
            "parts": _part_sections([*tasks, *evaluations]),
        },
    )
    return {"tasks.md": text, **files}


def make_training_page() -> dict[str, str]:
    """Make the page of training, its optimisers and schedules, and of execution, by path below docs/."""
    families = {"optimisers": Optimiser, "schedules": Schedule}
    parts = {name: "\n".join(map(_class_section, family.members().values())) for name, family in families.items()}
    plain = {"training": code_table(FIELD_HEADINGS, field_rows(Training))}
    plain["execution"] = code_table(FIELD_HEADINGS, field_rows(Execution))
    return {"training.md": fill_template("training", {**plain, **parts})}


def _class_section(cls: type[Spec]) -> str:
    return f"### {cls.__name__}\n\n{_paragraphs(getdoc(cls) or '')}\n\n{_field_table(field_rows(cls))}"


def _explain_all(family: str) -> list[Explanation]:
    names = [row.name for row in kinds(family)]
    return [explain_choice(name, family) for name in names if is_ours(find_choice(name, family)[1])]


def _contents(heading: str, explanations: Sequence[Explanation]) -> str:
    return table((heading, "description"), [(f"[{each.name}](#{each.name})", each.line) for each in explanations])


def _section(choice: Explanation, folder: str, drawn: str = "") -> str:
    caption = choice.line.replace("[", "(").replace("]", ")")
    parts = [
        f"### {choice.name}\n",
        f"{escape(choice.line)}\n",
        f"`{choice.use}`\n",
    ]
    if choice.of != "evaluation":
        parts.append(f"![{caption}]({folder}/{choice.name}.svg)\n")
    if drawn and not choice.use.endswith(f"; {drawn}"):
        parts.append(f"Drawn: `{drawn}`.\n")
    _, _, formula = choice.formula.partition("\n\n")
    if formula:
        parts.append(f"```text\n{formula}\n```\n")
    if choice.docstring:
        parts.append(f"{_paragraphs(choice.docstring)}\n")
    if choice.parts:
        links = ", ".join(f"[{each.name}](#{each.name.lower()})" for each in choice.parts)
        parts.append(f"Fields of its parts: {links}.\n")
    parts += write_facts(choice)
    if not choice.measures and choice.of != "probe":
        parts.append("Its measurements are known when it has run.\n")
    if choice.said:
        parts.append(f"{_paragraphs(choice.said)}\n")
    return "\n".join(parts)


def _part_sections(explanations: Sequence[Explanation]) -> str:
    """Describe each spec that is a field of a task or evaluation once."""
    parts = {part.name: part for each in explanations for part in each.parts}
    sections = [
        f"### {name}\n\n{_paragraphs(part.docstring)}\n\n{_field_table(part.fields)}"
        for name, part in sorted(parts.items())
    ]
    return "\n".join(["## Parts\n", *sections]) if sections else ""


def _field_table(rows: Sequence[FieldRow]) -> str:
    return code_table(FIELD_HEADINGS, rows) if rows else "It has no fields.\n"


def _paragraphs(text: str) -> str:
    """Keep the lines of indented blocks and escape all others."""
    return "\n\n".join(
        f"```text\n{block}\n```" if any(line.startswith("    ") for line in block.splitlines()) else escape(block)
        for block in text.split("\n\n")
    )
