"""Writes docs/operators.md and its pictures from the code; `python -m runners.catalogue.operators_page`."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from grid.errors import SpecError
from grid.operator_view import Profile
from grid.spec import Choice
from runners.catalogue.explain import Argument, Explanation, Part, different, explain
from runners.catalogue.explain_text import NUMBER_HEADINGS, added_words
from runners.catalogue.lookup import KindRow, find_kind, presets, stage_kinds
from runners.catalogue.markdown import listed, safe, table, write_files
from runners.catalogue.stage_words import field_words, formula, option_words
from runners.catalogue.weight_profile import DIGITS, LAST, profiles
from runners.catalogue.weight_svg import drawing
from runners.output import write
from variants import Backbone, Operator, Placement, Tokens, Transformer, softmax
from variants.attend import attention
from variants.model.shapes import shapes_only
from variants.papers.catalogue import PAPERS, NamedOperator, catalogue

INTRO = """# Operators

Generated from the code by `python -m runners.catalogue.operators_page`; edit the docstrings, not this page. In a
terminal, `ablate operators NAME` says the same and which execution paths can run it, and `ablate prove --operator NAME`
proves it.

Pictures show the weights of one query over the same 13 keys, whose logits stand below the bars; the line is softmax.
The query is the last, which sees all keys, unless the caption names another.
Numbers are where they start, unless the caption says otherwise. Bars apart are weights of what is not a key of the
sequence: a ground state, a sink, a learned key.

Every operator is one choice per stage of this equation, for one head of d channels, query i and its visible keys j, K_i
of them; a stage that is not mentioned is as in softmax:

```text
{equation}
```
"""


class Drawn(NamedTuple):
    """What a picture shows where an operator's start would show little."""

    arguments: Mapping[str, Any] = {}
    numbers: Mapping[str, float] = {}
    query: int = LAST
    """Whose row it is, counted from 0."""


_KEY = Drawn(numbers={"extra.learned_key": 2.0})
_AFFINE = Drawn(numbers={"rescale.scale": 0.6, "rescale.mean": 0.8})

DRAWN: Mapping[str, Drawn] = {
    "affine_scaled": _AFFINE,
    "affine_gated": _AFFINE,
    "differential": Drawn(numbers={"merge.factor": 0.5}),
    "fox": Drawn(numbers={"forgetting.gate": 0.8}),
    "fixed_value_bias": _KEY,
    "key_bias": _KEY,
    "key_value_bias": _KEY,
    "learned_sink": Drawn(numbers={"normaliser.logit": 2.0}),
    "prefix_lm": Drawn(arguments={"length": 8}, query=4),
    "principled": Drawn(numbers={"margin.amplification": -1.0, "gate.strength": 0.0, "normaliser.threshold": 1.0}),
    "principled_gate": Drawn(numbers={"gate.strength": 0.0}),
    "principled_ground": Drawn(numbers={"normaliser.threshold": 1.0}),
    "principled_margin": Drawn(numbers={"margin.amplification": -1.0}),
    "sliding_window": Drawn(arguments={"size": 5}),
    "softcap": Drawn(arguments={"cap": 2.0}),
}


def page() -> dict[str, str]:
    """Every file of the documentation of operators, by its path below docs/."""
    files, parts = {}, [INTRO.format(equation=equation()), _contents()]
    for paper, title in PAPERS.items():
        members = [each for each in packaged() if each.paper == paper]
        if members:
            parts.append(f"## {title}\n")
        for known in members:
            found, picture = explain(known), _picture(known)
            parts.append(_section(found, picture.words))
            if picture.svg:
                files[f"operators/{known.name}.svg"] = picture.svg
    parts += [_stages(), _backbones()]
    return {"operators.md": "\n".join(parts), **files}


def equation() -> str:
    """The indented lines of the docstring of the module that computes it."""
    lines = (sys.modules[attention.__module__].__doc__ or "").splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines if line.startswith("    "))


def packaged() -> list[NamedOperator]:
    """The named operators of the package, without those of a user."""
    return [each for each in catalogue().values() if _ours(each.make)]


def _kinds(only: str | None = None) -> list[KindRow]:
    return [row for row in stage_kinds(only) if _ours(find_kind(row.stage, row.kind))]


def _ours(made: object) -> bool:
    return str(getattr(made, "__module__", "")).startswith("variants.")


class Picture(NamedTuple):
    """A drawing and the lines of the page that show it, or a sentence in its place."""

    words: str
    svg: str | None


def _picture(known: NamedOperator) -> Picture:
    drawn = DRAWN.get(known.name, Drawn())
    operator = known.make(**drawn.arguments) if drawn.arguments else known.make()
    rows = profiles(operator, drawn.numbers, drawn.query)
    usual = profiles(softmax(), {}, drawn.query)[0].keys
    if known.make is not softmax and all(row.keys == usual for row in rows):
        return Picture(_elsewhere(operator), None)
    note = _values(drawn)
    svg = drawing(operator.label, note, rows, usual, _apart(operator))
    title = f"{operator.label} at {note}" if note else operator.label
    return Picture(f"![{_alt(title, rows)}](operators/{known.name}.svg)", svg)


_AFTER = {"readout": "what is read out with them", "head_norm": "a head's output", "output_gate": "a head's output"}


def _elsewhere(operator: Operator) -> str:
    """What an operator changes whose weights are softmax's."""
    changed = [words for stage, words in _AFTER.items() if stage in different(operator)]
    if not changed:
        raise SpecError(f"{operator.label!r} has softmax's weights here; say in DRAWN where it has others")
    return f"Its weights are softmax's; it changes {' and '.join(dict.fromkeys(changed))}."


def _values(drawn: Drawn) -> str:
    """At which values it is drawn; of a learned key, its logit; and of which query, unless it sees all keys."""
    told = {name.rpartition(".")[2]: value for name, value in {**drawn.arguments, **drawn.numbers}.items()}
    words = {"learned_key": "logit of the learned key", "logit": "logit of the sink"}
    values = [f"{words.get(name, name)} = {value:g}" for name, value in told.items()]
    return ", ".join((*values, *([f"query {drawn.query + 1} of 13"] if drawn.query != LAST else [])))


def _apart(operator: Operator) -> str:
    """What has the weight that is not a key's."""
    if operator.extra.label != "none":
        return "learned key"
    return operator.normaliser.label


def _alt(title: str, rows: Iterable[Profile]) -> str:
    sums = ", ".join(f"{row.total:.{DIGITS}f}" for row in rows)
    return f"Weights of {title} for one row of 13 logits, beside softmax's; keys sum to {sums}"


def _section(found: Explanation, picture: str) -> str:
    operator_text = [f"### {found.name}\n", f"{safe(found.line)}\n", f"`{found.use}`\n"]
    if found.arguments:
        operator_text.append(f"Arguments: {'; '.join(_argument(each) for each in found.arguments)}.\n")
    operator_text.append(f"{picture}\n")
    operator_text += [_formula(part) for part in found.parts]
    if found.numbers:
        operator_text.append(table(NUMBER_HEADINGS, [row.words for row in found.numbers]))
    if found.options:
        told = (f"`{name}={option_words(value)}`" for name, value in found.options.items())
        operator_text.append(f"Options: {', '.join(told)}.\n")
    operator_text.append(f"Parameters added to {found.model}: {added_words(found)}.\n")
    operator_text += listed("It is another operator where (proved)", found.limits)
    operator_text += listed("Traps", found.traps)
    operator_text += listed("Laws it does not keep", [f"{law}: {reason}" for law, reason in found.breaks.items()])
    return "\n".join(operator_text)


def _argument(argument: Argument) -> str:
    """Its default as code, then its values."""
    values = f" one of {', '.join(map(repr, argument.values))}" if argument.values else ""
    return f"`{argument.name}={argument.default!r}`{values}"


def _formula(part: Part) -> str:
    source = "" if "Source:" in part.formula or not part.source else f"\nSource: {part.source}."
    return f"**{part.stage}** `{part.kind}`\n\n```text\n{part.formula}{source}\n```\n"


def _contents() -> str:
    named = catalogue().values()
    return table(
        ("operator", "paper", "is"), [(f"[{each.name}](#{each.name})", each.paper, each.line) for each in named]
    )


def _stages() -> str:
    rows = [row for row in _kinds() if row.stage != "positions"]
    return "\n".join(
        (
            "## Stages and kinds\n",
            "An operator is one choice per stage, in this order; `ablate operators STAGE KIND` explains a choice. A",
            "combination that has no meaning is refused with the rule. `signals` is a field of the operator too: into",
            "how many slices a head's channels are cut, each with logits of its own.\n",
            table(("stage", "kind", "is", "source"), rows),
        )
    )


def _backbones() -> str:
    """Positions, models, placement, and what belongs to the backbone."""
    positions = _kinds("positions")
    return "\n".join(
        (
            "## Positions\n",
            "A field of the backbone, `positions`; any operator runs under any of them, or says why not.\n",
            table(("kind", "is", "source"), [(row.kind, row.line, row.source) for row in positions]),
            "## Backbones\n",
            "Models of the papers, `from variants.model.named_backbones import ...`; a vocabulary is the task's.\n",
            table(_PRESET_COLUMNS, [_preset(name, make) for name, make in presets().items()]),
            "What is not an attention map is a field of the backbone and no operator: paper 004's sink token",
            '(`sink_tokens=1`), heads that are added and not concatenated (`head_outputs="added"`), where norms stand',
            "(`norm_position`, `parallel`), the feedforward, grouped queries (`kv_heads`), encoders (`causal=False`).",
            "",
            table(_FIELD_COLUMNS, _fields(Backbone)),
            "## Placement\n",
            f"```text\n{formula(Placement)}\n\n{inspect.getdoc(Placement)}\n```\n",
            table(_FIELD_COLUMNS, _fields(Placement)),
        )
    )


_FIELD_COLUMNS = ("field", "is one of", "default", "is")
_PRESET_COLUMNS = ("model", "is", "layers", "heads", "width", "feedforward", "parameters of its layers")


def _preset(name: str, make: Callable[[], Backbone]) -> tuple[str, ...]:
    model = make()
    with shapes_only():
        built = Transformer(model, (Operator(),) * model.layers, inputs=Tokens(2), seed=0)
    size = sum(p.numel() for p in built.layers.parameters())
    heads = f"{model.heads}" if model.key_heads == model.heads else f"{model.heads}, {model.key_heads} of keys"
    told = " ".join((inspect.getdoc(make) or "").split())
    widths = (model.width, f"{model.feedforward_width} {model.feedforward}")
    return (name, told, *map(str, (model.layers, heads, *widths)), f"{size:,}")


def _fields(cls: type[Backbone] | type[Placement]) -> list[tuple[str, str, str, str]]:
    words = field_words(cls)
    return [
        (name, _among(field.annotation), "" if field.is_required() else _default(field.default), words.get(name, ""))
        for name, field in cls.model_fields.items()
    ]


def _among(annotation: object) -> str:
    """The values of a Literal, the kinds of a family, the name of another type."""
    if get_origin(annotation) is Literal:
        return ", ".join(map(repr, get_args(annotation)))
    if get_origin(annotation) is Annotated:
        return _among(get_args(annotation)[0])
    if isinstance(annotation, type):
        return ", ".join(annotation.members()) if issubclass(annotation, Choice) else annotation.__name__
    return " or ".join(_among(each) for each in get_args(annotation)).replace("NoneType", "None")


def _default(value: object) -> str:
    return value.label if isinstance(value, Operator) else repr(value)


def write_page(docs: Path) -> int:
    """Write every file below `docs` and remove pictures of operators that are gone; how many files there are."""
    return write_files(docs, "operators", page())


if __name__ == "__main__":
    write(f"docs/operators.md and its pictures: {write_page(Path('docs'))} files")
