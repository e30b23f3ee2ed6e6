"""Commands that explain operators and prove them."""

from collections.abc import Sequence
from pathlib import Path

from runners.commands.options import Json
from runners.output import write_json, write_table
from runners.repeat import Flag


def operators(
    name: str | None = None,
    kind: str | None = None,
    /,
    *,
    paper: str | None = None,
    stages: Flag = False,
    model: str | None = None,
    as_json: Json = False,
) -> int:
    """List the named operators, or explain one: formula, numbers, limits, traps. `operators score ssa` explains a kind.

    Parameters
    ----------
    name
        A named operator; or a stage, which lists its kinds.
    kind
        One kind of that stage, to explain it.
    paper
        List those of one paper: 000, 001, 002, 003, 004 or beyond.
    stages
        List every stage with its kinds instead.
    model
        The backbone in which added parameters are counted, such as llama2_125m; default gpt2_small.
    as_json
        Print JSON.
    """
    _check_use(name, kind, paper, stages=stages, model=model)
    from runners.explain import MODEL, data, explain, explain_kind, families, find_named, of_paper, stage_kinds
    from runners.explain_text import write_explanation, write_kind

    if name is None and not stages:
        rows = [(each.name, each.paper, each.line) for each in of_paper(paper)]
        _listed(("operator", "paper", "line"), rows, as_json=as_json)
    elif name is None or (name in families() and kind is None and model is None):
        _listed(("stage", "kind", "line", "source"), stage_kinds(name), as_json=as_json)
    elif kind is not None:
        part = explain_kind(name, kind)
        write_json("operators", data(part)) if as_json else write_kind(part)
    else:
        found = explain(find_named(name), model or MODEL)
        write_json("operators", data(found)) if as_json else write_explanation(found)
    return 0


def _check_use(name: str | None, kind: str | None, paper: str | None, *, stages: bool, model: str | None) -> None:
    """Refuse what would say nothing."""
    from grid.errors import SpecError

    if stages and (name or paper):
        raise SpecError("--stages lists all stages and takes neither a name nor --paper; leave them out")
    if name and paper:
        raise SpecError(f"--paper filters the list and {name} is one operator; leave --paper out")
    if model and (name is None or kind is not None):
        raise SpecError("--model counts the parameters of one named operator; give its name")


def _listed(columns: Sequence[str], rows: Sequence[tuple[str, ...]], *, as_json: bool) -> None:
    if as_json:
        write_json("operators", [dict(zip(columns, row, strict=True)) for row in rows])
    else:
        write_table(columns, rows)


def prove(spec: Path | None = None, /, *, operator: str | None = None) -> int:
    """Prove operators law by law: those of the package, or of a spec file with the choices defined in it.

    Parameters
    ----------
    spec
        A Python file that defines grids; default the package's own operators.
    operator
        Only the one of this name.
    """
    from runners.prove import prove as prove_operators

    return prove_operators(spec, operator)
