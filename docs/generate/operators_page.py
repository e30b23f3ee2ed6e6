"""The page of operators."""

import inspect
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from figures import COLOURS, Lines, Panel, draw_picture
from markdown import escape, fill_template, table, write_facts
from matplotlib.figure import SubFigure
from weight_profile import LAST, LOGITS, SETTINGS, Profile, Setting, equation, profiles

from ablate.training.catalogue.choice_words import FIELD_HEADINGS, field_rows
from ablate.training.catalogue.explain import (
    KindRow,
    different_stages,
    explain,
    find_kind,
    presets,
    stage_kinds,
)
from ablate.training.catalogue.explanation import Explanation
from ablate.training.catalogue.stage_words import formula
from ablate.variants import Backbone, Operator, Placement, Tokens, Transformer, softmax
from ablate.variants.model.shapes import shapes_only
from ablate.variants.papers.catalogue import PAPERS, NamedOperator, catalogue

_AFTER_WEIGHTS: Final = {
    "readout": "what is read out with them",
    "head_norm": "a head's output",
    "output_gate": "a head's output",
}
_PRESET_COLUMNS: Final = ("model", "description", "layers", "heads", "width", "feedforward", "parameters of its layers")


class Weights(NamedTuple):
    """Bars of weights over 13 keys, softmax as a line, and other weights as separate bars."""

    profile: Profile
    softmax: Sequence[float]
    separate: str
    """The name of a weight that belongs to no key."""

    @property
    def height(self) -> float:
        return 1.9

    def draw(self, figure: SubFigure) -> None:
        axes = figure.add_axes((0.08, 0.23, 0.9, 0.62))
        profile, places = self.profile, range(len(LOGITS))
        axes.bar(places, profile.keys, width=0.66, color=COLOURS["mark"])
        axes.hlines(self.softmax, [at - 0.45 for at in places], [at + 0.45 for at in places], color="black", lw=1.2)
        others = [each for each in (profile.ground, profile.extra) if each is not None]
        other_places = [len(LOGITS) + 0.5 + at for at in range(len(others))]
        bars = axes.bar(other_places, others, width=0.66, color=COLOURS["odd"])
        axes.bar_label(bars, fmt="%.3f")
        labels = [*(f"{z:g}" for z in LOGITS), *[self.separate] * len(others)]
        axes.set_xticks([*places, *other_places], labels)
        axes.axhline(0, color=COLOURS["plain"], linewidth=0.6)
        axes.set(xlabel="keys in order, each with its logit z (nats)", ylabel="weight", xlim=(-0.7, 15))
        heads = f"; {profile.heads}" if profile.heads else ""
        axes.set_title(f"keys sum to {profile.total:.3f}{heads}", loc="left")


def make_operators_page() -> dict[str, str]:
    """Make the page of operators and its pictures, by path below docs/."""
    operators = [each for each in catalogue().values() if _is_ours(each.make)]
    sections, pictures = list[str](), dict[str, str]()
    for paper, title in PAPERS.items():
        members = [each for each in operators if each.paper == paper]
        sections += [f"## {title}\n"] if members else []
        for known in members:
            caption, picture = _draw_operator(known)
            sections.append(_section(explain(known), caption))
            pictures |= {f"operators/{known.name}.svg": picture} if picture else {}
    rows = [row for row in stage_kinds() if _is_ours(find_kind(row.stage, row.kind))]
    text = fill_template(
        "operators",
        {
            "equation": equation(),
            "contents": table(
                ("operator", "paper", "description"),
                [(f"[{each.name}](#{each.name})", each.paper, each.line) for each in operators],
            ),
            "operators": "\n".join(sections),
            "stages": table(
                ("stage", *_KIND_COLUMNS), [(row.stage, *_kind_row(row)) for row in rows if row.stage != "positions"]
            ),
            "positions": table(_KIND_COLUMNS, [_kind_row(row) for row in rows if row.stage == "positions"]),
            "presets": table(_PRESET_COLUMNS, [_preset_row(name, make) for name, make in presets().items()]),
            "backbone": table(FIELD_HEADINGS, field_rows(Backbone, documented=False)),
            "placement_fields": table(FIELD_HEADINGS, field_rows(Placement)),
            "placement": f"{formula(Placement)}\n\n{inspect.getdoc(Placement)}",
        },
    )
    return {"operators.md": text, **pictures}


_KIND_COLUMNS = ("kind", "class", "description", "source")


def _kind_row(row: KindRow) -> tuple[str, ...]:
    return row.kind, f"`{find_kind(row.stage, row.kind).__name__}`", row.line, row.source


def _is_ours(value: object) -> bool:
    return str(getattr(value, "__module__", "")).startswith("ablate.variants.")


def _draw_operator(known: NamedOperator) -> tuple[str, str]:
    """Return the caption and the picture, which is empty if the weights are those of softmax."""
    setting = SETTINGS.get(known.name, Setting())
    operator = known.make(**setting.arguments) if setting.arguments else known.make()
    rows = profiles(operator, setting.numbers, setting.query)
    usual = profiles(softmax(), {}, setting.query)[0].keys
    if known.make is not softmax and all(row.keys == usual for row in rows):
        changed = [words for stage, words in _AFTER_WEIGHTS.items() if stage in different_stages(operator)]
        return f"Its weights are softmax's; it changes {' and '.join(dict.fromkeys(changed))}.", ""
    note = _setting_words(setting)
    separate = operator.normaliser.label if operator.extra.label == "none" else "learned key"
    panels: list[Panel] = [Weights(row, usual, separate) for row in rows]
    picture = draw_picture(
        f"{operator.label}: weights over 13 keys", [Lines([f"at {note}"]), *panels] if note else panels
    )
    title = f"{operator.label} at {note}" if note else operator.label
    sums = ", ".join(f"{row.total:.3f}" for row in rows)
    words = f"Weights of {title} for one row of 13 logits, beside softmax's; keys sum to {sums}"
    return f"![{words}](operators/{known.name}.svg)", picture


def _setting_words(setting: Setting) -> str:
    values = {name.rpartition(".")[2]: value for name, value in {**setting.arguments, **setting.numbers}.items()}
    words = {"learned_key": "logit of the learned key", "logit": "logit of the sink"}
    query = [f"query {setting.query + 1} of 13"] if setting.query != LAST else []
    return ", ".join([*(f"{words.get(name, name)} = {value:g}" for name, value in values.items()), *query])


def _section(operator: Explanation, caption: str) -> str:
    lines = [f"### {operator.name}\n", f"{escape(operator.line)}\n", f"`{operator.use}`\n", f"{caption}\n"]
    lines += [f"**{each.stage}** `{each.kind}`\n\n```text\n{each.text}\n```\n" for each in operator.formulas]
    return "\n".join([*lines, *write_facts(operator)])


def _preset_row(name: str, make: Callable[[], Backbone]) -> tuple[str, ...]:
    model = make()
    with shapes_only():
        built = Transformer(model, (Operator(),) * model.layers, inputs=Tokens(2), seed=0)
    size = sum(p.numel() for p in built.layers.parameters())
    heads = f"{model.heads}" if model.key_heads == model.heads else f"{model.heads}, {model.key_heads} of keys"
    line = " ".join((inspect.getdoc(make) or "").split())
    feedforward = f"{model.feedforward_width} {model.feedforward}"
    return (name, line, str(model.layers), heads, str(model.width), feedforward, f"{size:,}")
