"""Title, unit and lower bound of what runs record, as the plan of a grid writes them or, for older plans, as known."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ablate.grid.row_info import RowInfo, header_rows

if TYPE_CHECKING:  # `Trial` reads this, and workers need no polars for it
    import polars as pl

SHARE: Final = "share of 1"  # the unit of what lies between 0 and 1
_SIGNED: Final = "weight, signed"
_LENGTH: Final = "length of a vector"
_OWN: Final = "the number's own"
_SIZES: Final = frozenset(
    {SHARE, _LENGTH, "ratio", "directions, 1 to T", "norm of the gradient", "steps", "sequences", "queries"}
)
"""Units of what is never below 0."""
_POSITIVE: Final = ("entropy", "entropy_last", "entropy_last_sd", "qk_logit_sd")
"""Rows of other units that are never below 0."""


class RowLabel(NamedTuple):
    """Describes a row; `title` is its name if nothing is known of it, and `least` is None without a lower bound."""

    title: str
    unit: str
    least: float | None

    @property
    def axis_unit(self) -> str:
        """The unit on an axis; empty also for numbers that each have another one."""
        return "" if self.unit == _OWN else self.unit


_ROWS: Final[Mapping[str, tuple[str, str, str]]] = {
    "activation_first": ("residual stream at the first token", _LENGTH, "MassiveActivation"),
    "activation_others": ("residual stream at other tokens", _LENGTH, "MassiveActivation"),
    "activation_ratio": ("residual stream at the first token over others", "ratio", "MassiveActivation"),
    "below_threshold": ("keys below the threshold of relevance", SHARE, "GroundMass"),
    "effective_rank": ("effective rank", "directions, 1 to T", "EffectiveRank"),
    "effective_rank_median": ("effective rank, median over heads", "directions, 1 to T", "EffectiveRank"),
    "entropy": ("entropy of attention", "nats", "AttentionEntropy"),
    "entropy_last": ("entropy at the last position", "nats", "AttentionEntropy"),
    "entropy_last_sd": ("entropy at the last position, s.d. over sequences", "nats", "AttentionEntropy"),
    "first_key_norm": ("norm of the first key", _LENGTH, "FirstKey"),
    "first_qk_cosine": ("cosine of queries and the first key", "-1 to 1", "FirstKey"),
    "first_token_negative": ("queries with a negative weight of the first token", SHARE, "FirstToken"),
    "first_token_weight": ("weight of the first token", _SIGNED, "FirstToken"),
    "first_value_norm": ("norm of the first value", _LENGTH, "FirstKey"),
    "gate_sparsity": ("closed output gates", SHARE, "GateSparsity"),
    "gradient_norm_cv": ("gradient norm, s.d. over mean", "ratio", "GradientNorms"),
    "gradient_norm_mean": ("gradient norm, mean", "norm of the gradient", "GradientNorms"),
    "gradient_norm_not_finite": ("gradient norms that are no number", "steps", "GradientNorms"),
    "gradient_norm_sd": ("gradient norm, s.d.", "norm of the gradient", "GradientNorms"),
    "gradient_norm_variance": ("gradient norm, variance", "norm of the gradient, squared", "GradientNorms"),
    "gradient_spikes": ("spikes of the gradient norm", "steps", "GradientNorms"),
    "ground_mass": ("weight beside the keys (ground state or sink)", "weight", "GroundMass"),
    "importance": ("attention that a position draws", SHARE, "SinkShare"),
    "number": ("learned number", _OWN, "LearnedNumbers"),
    "other_key_norm": ("norm of other keys", _LENGTH, "FirstKey"),
    "other_qk_cosine": ("cosine of queries and other keys", "-1 to 1", "FirstKey"),
    "other_value_norm": ("norm of other values", _LENGTH, "FirstKey"),
    "predicted": ("predicted number, mean over tokens", _OWN, "PredictedNumbers"),
    "predicted_sd": ("predicted number, s.d. over tokens", _OWN, "PredictedNumbers"),
    "qk_logit_mean": ("logits of visible pairs, mean", "nats", "QKLogits"),
    "qk_logit_sd": ("logits of visible pairs, s.d.", "nats", "QKLogits"),
    "raw_importance": ("attention that a position draws, signed", _SIGNED, "SinkShare"),
    "raw_sink_sequences": ("sequences behind the signed sink share", "sequences", "SinkShare"),
    "raw_sink_share": ("heads with a sink, by signed weights", SHARE, "SinkShare"),
    "sink_sequences": ("sequences behind the sink share", "sequences", "SinkShare"),
    "sink_share": ("heads with a sink", SHARE, "SinkShare"),
    "token_class": ("attention to a class of tokens", SHARE, "TokenClasses"),
    "token_class_softmax": ("attention to a class of tokens, softmax of shares", SHARE, "TokenClasses"),
    "unnormed_activation_first": ("residual stream at the first token, before the norm", _LENGTH, "MassiveActivation"),
    "unnormed_activation_others": ("residual stream at other tokens, before the norm", _LENGTH, "MassiveActivation"),
    "unnormed_activation_ratio": ("that at the first token over others, before the norm", "ratio", "MassiveActivation"),
    "weight_sum": ("sum of a query's weights", _SIGNED, "WeightSums"),
    "weight_sum_count": ("queries by the sum of their weights", "queries", "WeightSums"),
    "weight_sum_mean": ("sum of a query's weights, mean over queries", _SIGNED, "WeightSums"),
    "weight_sum_median": ("sum of a query's weights, median over queries", _SIGNED, "WeightSums"),
}
PROBES: Final = tuple(sorted({probe for _, _, probe in _ROWS.values()}))
"""As specs list them; `AttentionMaps` leaves files and no rows."""


def complete(info: RowInfo) -> RowInfo:
    """Return a row without the varying parts of its name, and with a title and a lower bound if they are known."""
    name = _VARYING.sub("", info.name)
    title, _, _ = _ROWS.get(name, ("", "", ""))
    least = 0.0 if info.least is None and (info.unit in _SIZES or name in _POSITIVE) else info.least
    return info._replace(name=name, title=info.title or title, least=least)


_VARYING: Final = re.compile(r"(\.[A-Z]+)+$")
_KNOWN: Final = header_rows(complete(RowInfo(name, unit)) for name, (_, unit, _) in _ROWS.items())


def row_label(header: Mapping[str, Any], name: str) -> RowLabel:
    """Describe a recorded row of a grid: "number.margin.amplification" is a `number`, and "optimum.mse" an `mse`.

    "knockout.gate.mse" is the change of `mse` by leaving the gate out, so it has no lower bound.
    """
    what, _, measure = name.removeprefix("knockout.").partition(".")
    if measure and name.startswith("knockout.") and what != "none":
        return row_label(header, measure)._replace(title=f"change of {measure} by the knock-out {what}", least=None)
    rows = {**_KNOWN, **(header.get("rows") or {})}
    known = next((part for part in (name, *name.split(".")) if part in rows), None)
    if known is None:
        return RowLabel(name, "", None)
    title, unit, least = (rows[known][field] for field in ("title", "unit", "least"))
    if known != name:
        title = f"{title}: {name.removeprefix(f'{known}.')}" if name.startswith(f"{known}.") else name
    return RowLabel(title, unit, least)


def unit_of(header: Mapping[str, Any], name: str) -> str:
    """Return the unit of a measure: as the grid's measure says, or else as what records it says; empty if unknown."""
    own = header["measure"] or {}
    return (own.get("name") == name and own.get("unit")) or row_label(header, name).axis_unit


def clip_interval(header: Mapping[str, Any], frame: "pl.DataFrame", name: str) -> "pl.DataFrame":
    """Cut `low` and `high` where the row `name` has no values: below its least one, and a share beyond 1."""
    import polars as pl

    _, unit, least = row_label(header, name)
    return frame.with_columns(pl.col("low", "high").clip(least, 1.0 if unit == SHARE else None))
