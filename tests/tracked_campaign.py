"""A campaign whose runs are exported to trackers, and the names of its scalars there."""

from pathlib import Path

from synthetic import Campaign, write_campaign


def write_tracked_campaign(root: Path) -> Campaign:
    """Write a grid with an odd label, a failed, a resumed and a pending trial, and two points of a measurement."""
    return write_campaign(
        root,
        operators=("softmax", "a/b"),
        factors={"lr": [0.1], "gated": [True]},
        seeds=range(2),
        resumed={("a/b · 0.1 · true", 1)},
        failed={("softmax · 0.1 · true", 0): "diverged"},
        pending={("softmax · 0.1 · true", 1)},
        sigma_f=(1, 5),
    )


def scalar_name(name: str, point: dict[str, float]) -> str:
    return f"{name}/{','.join(f'{key}={value:g}' for key, value in point.items())}" if point else name
