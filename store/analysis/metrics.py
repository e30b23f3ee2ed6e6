"""The unit of everything that tasks and evaluations measure, and which way is better, by name without predictor."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from store.published.tables import cells
from store.statistics import Better


class MetricInfo(NamedTuple):
    """What a number means."""

    unit: str
    better: Literal["lower", "higher", ""] = ""
    """Empty where neither is: a number that is looked at and does not judge."""


_SHARE = "share of 1"

MEASURES: Mapping[str, MetricInfo] = {
    "accuracy": MetricInfo(_SHARE, "higher"),
    "agreement_accuracy": MetricInfo(_SHARE, "higher"),
    "balanced_accuracy": MetricInfo(_SHARE, "higher"),
    "bits_above_optimum": MetricInfo("bits per token", "lower"),
    "bits_per_byte": MetricInfo("bits per byte", "lower"),
    "boundary_extent": MetricInfo("unit of x", "higher"),
    "boundary_lower": MetricInfo("unit of f(x)"),
    "boundary_prediction": MetricInfo("unit of f(x)"),
    "boundary_slope": MetricInfo("share of a; 1 follows the function"),
    "boundary_upper": MetricInfo("unit of f(x)"),
    "deviant_mse": MetricInfo("unit of f(x), squared", "lower"),
    "deviant_prediction": MetricInfo("unit of f(x)"),
    "error_rate": MetricInfo(_SHARE, "lower"),
    "large_value_error_rate": MetricInfo(_SHARE, "lower"),
    "byte_perplexity": MetricInfo("per byte", "lower"),
    "length_extrapolation_bucket_loss": MetricInfo("nats per token", "lower"),
    "length_extrapolation_last_loss": MetricInfo("nats per token", "lower"),
    "length_extrapolation_loss": MetricInfo("nats per token", "lower"),
    "long_context": MetricInfo(_SHARE, "higher"),
    "long_context_truncated": MetricInfo(_SHARE),
    "masked_accuracy": MetricInfo(_SHARE, "higher"),
    "minimal_pairs": MetricInfo(_SHARE, "higher"),
    "minimal_pairs_ties": MetricInfo(_SHARE),
    "multiple_choice_acc": MetricInfo(_SHARE, "higher"),
    "multiple_choice_acc_bytes": MetricInfo(_SHARE, "higher"),
    "multiple_choice_acc_full": MetricInfo(_SHARE, "higher"),
    "multiple_choice_acc_norm": MetricInfo(_SHARE, "higher"),
    "multiple_choice_acc_tokens": MetricInfo(_SHARE, "higher"),
    "multiple_choice_loss": MetricInfo("nats per answer", "lower"),
    "multiple_choice_truncated": MetricInfo(_SHARE),
    "mse": MetricInfo("unit of f(x), squared", "lower"),
    "perplexity": MetricInfo("per token", "lower"),
    "relative_mse": MetricInfo("share of the error of predicting 0", "lower"),
    "sequence_accuracy": MetricInfo(_SHARE, "higher"),
    "squared_error": MetricInfo("unit of f(x), squared", "lower"),
    "cross_entropy": MetricInfo("nats per token", "lower"),
    "kl": MetricInfo("nats per token", "lower"),
    "soft_cross_entropy": MetricInfo("nats per token", "lower"),
    "validation_kl": MetricInfo("nats per token", "lower"),
    "validation_loss": MetricInfo("nats per token", "lower"),
    "validation_soft_cross_entropy": MetricInfo("nats per token", "lower"),
    "word_perplexity": MetricInfo("per word", "lower"),
}

_HARNESS: Final[Mapping[str, Better]] = {
    **dict.fromkeys(("acc", "acc_all", "acc_bytes", "acc_mutual_info", "acc_norm", "bleu", "chrf", "chrf++"), "higher"),
    **dict.fromkeys(("exact_match", "f1", "likelihood", "mcc"), "higher"),
    **dict.fromkeys(("bits_per_byte", "brier_score", "perplexity", "ter"), "lower"),
}
"""Metrics of lm-eval 0.4.13, as its registry says (HIGHER_IS_BETTER_REGISTRY)."""


def direction(name: str) -> Better | None:
    """Which way a measurement is better, whichever predictor or set it is of; None where nothing says.

    `name` is that of an evaluation, of a training metric, or of a row of the harness ("lm_eval.piqa.acc"). What no task
    of this package measures has the direction that the published tables give it.
    """
    parts = name.split(".")
    for part in parts:
        if part in MEASURES:
            return MEASURES[part].better or None
    if parts[-1] == "loss":
        return "lower"
    if parts[0] == "lm_eval":
        return next((_HARNESS[part] for part in parts[2:] if part in _HARNESS), None)
    return next((cell.better for cell in cells() if cell.measurement == name), None)
