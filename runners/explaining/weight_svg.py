"""A weight profile as an SVG: bars over keys, softmax as a line, what is not a key as a bar apart."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from runners.explaining.weight_profile import LOGITS, Profile

WIDTH, PANEL, LEFT, TOP, BASE = 640, 196, 56, 44, 40
STEP, BAR = 36, 24
STYLE = (
    "svg{--paper:#fff;--ink:#24292f;--faint:#6e7781;--grid:#d8dee4;--key:#0072b2;--other:#d55e00}"
    "@media(prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--faint:#9198a1;--grid:#30363d;"
    "--key:#56b4e9;--other:#e69f00}}"
    ".paper{fill:var(--paper)}text{fill:var(--ink);font:12px system-ui,sans-serif}.small{font-size:11px;"
    "fill:var(--faint)}.title{font-size:14px;font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}"
    ".grid{stroke:var(--grid)}.zero{stroke:var(--faint)}.key{fill:var(--key)}.other{fill:var(--other)}"
    ".softmax{stroke:var(--ink);stroke-width:1.5;fill:none}"
)


def drawing(title: str, note: str, panels: Sequence[Profile], softmax: Sequence[float], other: str) -> str:
    """The whole SVG; `note` says at which numbers, `other` names what is not a key of the sequence and has a weight."""
    height = TOP + PANEL * len(panels) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{escape(title)}: weights over 13 keys</title><style>{STYLE}</style>',
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>',
        _text("title", LEFT, 26, title),
        f'<path class="softmax" d="M{WIDTH - 92} 22h20"/><text x="{WIDTH - 66}" y="26">softmax</text>',
    ]
    for at, panel in enumerate(panels):
        words = (f"weight; keys sum to {_signed(f'{panel.total:.3f}')}", panel.heads, _signed(note))
        parts.append(_text("small", LEFT, TOP + PANEL * at + 6, "; ".join(filter(None, words))))
        parts += _panel(panel, softmax, other, TOP + PANEL * at)
    return "\n".join((*parts, "</svg>", ""))


def _panel(panel: Profile, softmax: Sequence[float], other: str, top: int) -> list[str]:
    apart = [each for each in (panel.ground, panel.extra) if each is not None]
    low, high, tick = _axis([0.0, *panel.keys, *softmax, *apart])
    plot = PANEL - BASE - 22
    first, bottom = top + 16, top + 16 + plot

    def y(value: float) -> float:
        return round(bottom - (value - low) / (high - low) * plot, 1) + 0.0

    right = LEFT + STEP * len(LOGITS) + 8
    parts = [_text("small", LEFT, bottom + 31, "keys in order, each with its logit z (nats)")]
    for count in range(round((high - low) / tick) + 1):
        value = round(low + count * tick, 6) + 0.0
        line = "zero" if value == 0 else "grid"
        parts.append(f'<path class="{line}" d="M{LEFT} {y(value)}H{right}"/>')
        parts.append(_text("small end", LEFT - 6, y(value) + 4, _signed(f"{value:g}")))
    for at, (weight, usual, z) in enumerate(zip(panel.keys, softmax, LOGITS, strict=True)):
        x = LEFT + 12 + STEP * at
        parts.append(_bar(x, y(weight), y(0), "key"))
        parts.append(f'<path class="softmax" d="M{x - 4} {y(usual)}h{BAR + 8}"/>')
        parts.append(_text("small mid", x + BAR // 2, bottom + 15, _signed(f"{z:g}")))
    for at, weight in enumerate(apart):
        x = right + 30 + STEP * at
        parts.append(_bar(x, y(weight), y(0), "other"))
        parts.append(_text("mid", x + BAR // 2, min(y(weight), y(0)) - 5, _signed(f"{weight:.3f}")))
        parts.append(_text("small mid", x + BAR // 2, bottom + 15, other))
    return [*parts, f'<path class="zero" d="M{LEFT} {first}V{bottom}"/>']


def _text(style: str, x: int, y: float, words: str) -> str:
    return f'<text class="{style}" x="{x}" y="{round(y, 1):g}">{escape(words)}</text>'


def _bar(x: int, end: float, zero: float, what: str) -> str:
    top, size = min(end, zero), round(abs(end - zero), 1)
    return f'<rect class="{what}" x="{x}" y="{top}" width="{BAR}" height="{size}" rx="1"/>'


def _signed(words: str) -> str:
    """With minus signs for hyphens, where words hold numbers."""
    return words.replace("-", "−")


def _axis(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower and upper end and the step between ticks: three to six ticks of 1, 2 or 5 times a power of ten."""
    low, high = min(values), max(values)
    tick = next(
        step * 10.0**power for power in range(-3, 6) for step in (1, 2, 5) if (high - low) / (step * 10.0**power) <= 4
    )
    ends = (tick * -(-high // tick), tick * (low // tick))
    return round(ends[1], 6) + 0.0, round(ends[0], 6) + 0.0, tick
