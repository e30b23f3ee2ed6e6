"""Commands that explain operators, tasks, evaluations and probes, and prove operators."""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ablate.grid.errors import SpecError
from ablate.runners.cli.options import Flag, Json, flag_group
from ablate.runners.output import tell, write, write_json, write_prose, write_table

if TYPE_CHECKING:
    from ablate.training.catalogue.explain import KindRow
    from ablate.training.catalogue.explanation import Explanation, PartRows
    from ablate.variants.paths.case import Case

STAGES = "stages"
"""Argument of `ablate operators` that lists the kinds of every stage."""


@flag_group
class OperatorPage:
    """Options of the page about one named operator.

    Parameters
    ----------
    model
        The backbone in which added parameters are counted, such as llama2_125m; default gpt2_small.
    paths
        Say only which execution path computes it, and why others do not.
    length
        Tokens of a sequence, for --paths; default 1024.
    device
        Where it is computed, for --paths; default cpu.
    precision
        As in Training, for --paths; default float32. In bfloat16, GPUs compute more operators on fast paths.
    """

    model: str | None = None
    paths: Flag = False
    length: int | None = None
    device: Literal["cpu", "cuda"] | None = None
    precision: Literal["float32", "bfloat16"] | None = None

    def case(self) -> "Case":
        """Return the case in which --paths chooses a path."""
        import torch

        from ablate.variants.paths.case import Case

        length, dtype = self.length or 1024, torch.bfloat16 if self.precision == "bfloat16" else torch.float32
        return Case(length, length, self.device or "cpu", dtype)

    def check(self, *, is_named: bool) -> None:
        """Raise SpecError for options that say nothing about the page."""
        for flag, is_given in (("--model counts the parameters of", self.model), ("--paths is about", self.paths)):
            if is_given and not is_named:
                raise SpecError(f"{flag} one named operator; give its name")
        if not self.paths and (self.length, self.device, self.precision) != (None, None, None):
            raise SpecError(
                "--length, --device and --precision have no effect without --paths; add it, or leave them out"
            )
        if self.length is not None and self.length < 1:
            raise SpecError(f"--length {self.length} is no number of tokens; give 1 or more")


def operators(
    name: str | None = None,
    kind: str | None = None,
    /,
    *,
    spec: Path | None = None,
    paper: str | None = None,
    page: OperatorPage = OperatorPage(),
    as_json: Json = False,
) -> None:
    """List the named operators, or explain one: formula, numbers, limits, pitfalls.

    `ablate operators score ssa` explains a kind of a stage.

    Parameters
    ----------
    name
        A named operator; or a stage, which lists its kinds; or `stages`, for the kinds of all.
    kind
        One kind of that stage, to explain it.
    spec
        A spec file: its named operators and choices are known too, and without a name these alone are listed.
    paper
        List those of one paper: baseline, 000, 001, 002, 003, 004 or beyond.
    """
    from ablate.runners.provenance.specfile import import_spec_file
    from ablate.training.catalogue import explain as facts

    listing = kind is None and name in (STAGES, *facts.families())
    if name and paper:
        raise SpecError(f"--paper and {name!r} do not go together: it filters the list; leave one out")
    page.check(is_named=name is not None and kind is None and not listing)
    module = spec and import_spec_file(spec)
    if page.paths and name is not None:
        rows = facts.path_rows(facts.find_named(name).make(), page.case())
        _write_names(("path", "chosen", "reason"), rows, as_json=as_json)
    elif module and name is None and paper is None:
        _write_names(("kind", "name", "line", "source"), facts.defined_in(module), as_json=as_json)
    elif name is None:
        named = [(each.name, each.paper, each.line) for each in facts.of_paper(paper)]
        _write_names(("operator", "paper", "line"), named, as_json=as_json)
    elif listing:
        _write_kinds(facts.stage_kinds(None if name == STAGES else name), brief=name == STAGES, as_json=as_json)
    else:
        model = page.model or facts.MODEL
        explanation = facts.explain(facts.find_named(name), model) if kind is None else facts.explain_kind(name, kind)
        write_json("operators", facts.data(explanation)) if as_json else _write_explanation(explanation)


def _write_names(columns: Sequence[str], rows: Sequence[tuple[str, ...]], *, as_json: bool) -> None:
    if as_json:
        write_json("operators", [dict(zip(columns, row, strict=True)) for row in rows])
    else:
        headings = ["description" if name == "line" else name for name in columns]
        write_table(headings, rows, overflow="ellipsis" if headings[-1] == "description" else "fold")


def _write_kinds(rows: "Sequence[KindRow]", *, brief: bool, as_json: bool) -> None:
    if as_json or not brief:
        _write_names(("stage", "kind", "line", "source"), rows, as_json=as_json)
        return
    stages = groupby(rows, key=attrgetter("stage"))
    write_table(("stage", "kinds"), [(stage, ", ".join(row.kind for row in kinds)) for stage, kinds in stages])
    tell("`ablate operators STAGE` describes the kinds of a stage, `ablate operators STAGE KIND` one of them")


def tasks(
    name: str | None = None, part: str | None = None, /, *, spec: Path | None = None, as_json: Json = False
) -> None:
    """List the tasks and evaluations, or explain one: fields, measurements, needs.

    Parameters
    ----------
    name
        A task or an evaluation, such as needle.
    part
        One of the specs in its fields, such as ShiftGrid, to explain it.
    spec
        A spec file: its tasks and evaluations are known too, and without a name these alone are listed.
    """
    _choices(("task", "evaluation"), name, part, spec, as_json=as_json)


def probes(name: str | None = None, /, *, spec: Path | None = None, as_json: Json = False) -> None:
    """List the probes, or explain one: what it looks for, fields, rows, cost.

    Parameters
    ----------
    name
        A probe, such as sink_share.
    spec
        A spec file: its probes are known too, and without a name these alone are listed.
    """
    _choices(("probe",), name, None, spec, as_json=as_json)


def _choices(of: tuple[str, ...], name: str | None, part: str | None, spec: Path | None, *, as_json: bool) -> None:
    from ablate.runners.provenance.specfile import import_spec_file
    from ablate.training.catalogue.explain import data
    from ablate.training.catalogue.explain_choice import explain_choice, find_part, kinds

    module = None if spec is None else import_spec_file(spec)
    command = f"{of[0]}s"
    if name is None:
        rows = kinds(*of, defined_in=module)
        table = [row._asdict() for row in rows]
        columns = ("kind", "name", "description")[len(of) == 1 :]
        lines = [row[-len(columns) :] for row in rows]
        write_json(command, table) if as_json else write_table(columns, lines, overflow="ellipsis")
    else:
        explanation = explain_choice(name, *of)
        if part is not None:
            inner = find_part(explanation, part)
            write_json(command, data(inner)) if as_json else _write_part(inner)
        else:
            write_json(command, data(explanation)) if as_json else _write_explanation(explanation)


def prove(spec: Path | None = None, /, *, operator: str | None = None, full: Flag = False, laws: Flag = False) -> int:
    """Prove operators law by law: those of the package, or of a spec file.

    Each distinct choice of the operators is tried once, which takes seconds. So are the choices of the file, and its
    own tasks, evaluations, probes and experiments; of these, a few steps are trained.

    Parameters
    ----------
    spec
        A Python file that defines grids, choices, operators, tasks or experiments; default the package's operators.
    operator
        Only the one of this name.
    full
        Every operator and cell, and each choice of the file beside all others, which takes minutes.
    laws
        List the laws instead, a sentence each.
    """
    if laws:
        if spec or operator or full:
            raise SpecError(
                "--laws goes with neither a file nor --operator nor --full: it lists the laws; leave them out"
            )
        from ablate.training.catalogue.prove_own import OTHER_LAWS
        from ablate.variants.laws.battery import LAWS

        write_table(("law", "description"), [*((law.name, law.sentence) for law in LAWS), *OTHER_LAWS.items()])
        return 0
    import torch

    from ablate.training.catalogue.prove import prove as prove_operators

    torch.set_num_threads(1)  # on inputs this small, several threads are slower
    return prove_operators(spec, operator, full=full)


def _write_explanation(explanation: "Explanation") -> None:
    write_prose(f"{explanation.of} {explanation.name}: {explanation.line}")
    _, _, formula = explanation.formula.partition("\n\n")  # its first paragraph is the line
    write("\n\n".join(filter(None, (explanation.home, explanation.use, formula, explanation.docstring))))
    for part in explanation.formulas:
        write(f"\n{part.stage} = {part.kind}")
        write("\n".join(f"    {line}" if line else "" for line in part.text.splitlines()))
    for heading, rows, headings, is_code in explanation.facts():
        if is_code and len(rows) == 1:
            write(f"\n{heading}: {rows[0]}")
            continue
        write(f"\n{heading}")
        if headings:
            write_table(headings, rows)
        else:
            for line in rows:
                write_prose(f"  - {line}")
    if explanation.parts:
        tell(f"`ablate tasks {explanation.name} PART` explains a part")
    if explanation.said:
        write(f"\n{explanation.said}")


def _write_part(part: "PartRows") -> None:
    from ablate.training.catalogue.choice_words import FIELD_HEADINGS

    write(f"{part.name}: {part.docstring}")
    if part.fields:
        write("")
        write_table(FIELD_HEADINGS, part.fields)
