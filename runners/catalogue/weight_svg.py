"""A weight profile as an SVG: bars over keys, softmax as a line, what is not a key as a bar apart."""

from collections.abc import Sequence

from grid.operator_view import Profile
from runners.catalogue.svg import WIDTH, axis, opening, signed, text
from runners.catalogue.weight_profile import LOGITS

PANEL, LEFT, TOP, BASE = 196, 56, 44, 40
STEP, BAR = 36, 24
SOFTMAX = ".softmax{stroke:var(--ink);stroke-width:1.5;fill:none}"


def drawing(title: str, note: str, panels: Sequence[Profile], softmax: Sequence[float], other: str) -> str:
    """The whole SVG; `note` says at which numbers, `other` names what is not a key of the sequence and has a weight."""
    height = TOP + PANEL * len(panels) + 4
    parts = [
        *opening(f"{title}: weights over 13 keys", height, SOFTMAX),
        text("title", LEFT, 26, title),
        f'<path class="softmax" d="M{WIDTH - 92} 22h20"/><text x="{WIDTH - 66}" y="26">softmax</text>',
    ]
    for at, panel in enumerate(panels):
        words = (f"weight; keys sum to {signed(f'{panel.total:.3f}')}", panel.heads, signed(note))
        parts.append(text("small", LEFT, TOP + PANEL * at + 6, "; ".join(filter(None, words))))
        parts += _panel(panel, softmax, other, TOP + PANEL * at)
    return "\n".join((*parts, "</svg>", ""))


def _panel(panel: Profile, softmax: Sequence[float], other: str, top: int) -> list[str]:
    apart = [each for each in (panel.ground, panel.extra) if each is not None]
    low, high, tick = axis([0.0, *panel.keys, *softmax, *apart])
    plot = PANEL - BASE - 22
    first, bottom = top + 16, top + 16 + plot

    def y(value: float) -> float:
        return round(bottom - (value - low) / (high - low) * plot, 1) + 0.0

    right = LEFT + STEP * len(LOGITS) + 8
    parts = [text("small", LEFT, bottom + 31, "keys in order, each with its logit z (nats)")]
    for count in range(round((high - low) / tick) + 1):
        value = round(low + count * tick, 6) + 0.0
        line = "zero" if value == 0 else "grid"
        parts.append(f'<path class="{line}" d="M{LEFT} {y(value)}H{right}"/>')
        parts.append(text("small end", LEFT - 6, y(value) + 4, signed(f"{value:g}")))
    for at, (weight, usual, z) in enumerate(zip(panel.keys, softmax, LOGITS, strict=True)):
        x = LEFT + 12 + STEP * at
        parts.append(_bar(x, y(weight), y(0), "key"))
        parts.append(f'<path class="softmax" d="M{x - 4} {y(usual)}h{BAR + 8}"/>')
        parts.append(text("small mid", x + BAR // 2, bottom + 15, signed(f"{z:g}")))
    for at, weight in enumerate(apart):
        x = right + 30 + STEP * at
        parts.append(_bar(x, y(weight), y(0), "other"))
        parts.append(text("mid", x + BAR // 2, min(y(weight), y(0)) - 5, signed(f"{weight:.3f}")))
        parts.append(text("small mid", x + BAR // 2, bottom + 15, other))
    return [*parts, f'<path class="zero" d="M{LEFT} {first}V{bottom}"/>']


def _bar(x: int, end: float, zero: float, what: str) -> str:
    top, size = min(end, zero), round(abs(end - zero), 1)
    return f'<rect class="{what}" x="{x}" y="{top}" width="{BAR}" height="{size}" rx="1"/>'
