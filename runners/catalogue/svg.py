"""What the pictures of all pages have in common: colours of light and dark, text, axes.

Sizes are in pixels; a picture is 640 wide, and its colours follow the reader's scheme.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape

WIDTH = 640
STYLE = (
    "svg{--paper:#fff;--ink:#24292f;--faint:#6e7781;--grid:#d8dee4;--key:#0072b2;--other:#d55e00}"
    "@media(prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--faint:#9198a1;--grid:#30363d;"
    "--key:#56b4e9;--other:#e69f00}}"
    ".paper{fill:var(--paper)}text{fill:var(--ink);font:12px system-ui,sans-serif}.small{font-size:11px;"
    "fill:var(--faint)}.title{font-size:14px;font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}"
    ".grid{stroke:var(--grid)}.zero{stroke:var(--faint)}.key{fill:var(--key)}.other{fill:var(--other)}"
)


def opening(title: str, height: float, style: str) -> list[str]:
    """The first lines of an SVG: its size, its title for those who do not see it, its style and its paper."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" role="img"><title>{escape(title)}</title><style>{STYLE}{style}</style>',
        f'<rect class="paper" width="{WIDTH}" height="{height:g}" rx="6"/>',
    ]


def text(style: str, x: float, y: float, words: str) -> str:
    """Words in a class of the style; its anchor is at x, y."""
    return f'<text class="{style}" x="{round(x, 1):g}" y="{round(y, 1):g}">{escape(words)}</text>'


def signed(words: str) -> str:
    """With minus signs for hyphens, where words hold numbers."""
    return words.replace("-", "−")


def axis(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower and upper end and the step between ticks: three to six ticks of 1, 2 or 5 times a power of ten."""
    low, high = min(values), max(values)
    tick = next(
        step * 10.0**power for power in range(-3, 6) for step in (1, 2, 5) if (high - low) / (step * 10.0**power) <= 4
    )
    ends = (tick * -(-high // tick), tick * (low // tick))
    return round(ends[1], 6) + 0.0, round(ends[0], 6) + 0.0, tick
