"""The unit of everything that tasks and evaluations measure, and which way is better, by name without predictor."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from store.published.tables import cells
from store.statistics import Better


class Told(NamedTuple):
    """What a number means."""

    unit: str
    better: Literal["lower", "higher", ""] = ""
    """Empty where neither is: a number that is looked at and does not judge."""


_SHARE = "share of 1"

MEASURES: Mapping[str, Told] = {
    "accuracy": Told(_SHARE, "higher"),
    "agreement_accuracy": Told(_SHARE, "higher"),
    "balanced_accuracy": Told(_SHARE, "higher"),
    "bits_above_optimum": Told("bits per token", "lower"),
    "bits_per_byte": Told("bits per byte", "lower"),
    "boundary_extent": Told("unit of x", "higher"),
    "boundary_lower": Told("unit of f(x)"),
    "boundary_prediction": Told("unit of f(x)"),
    "boundary_slope": Told("share of a; 1 follows the function"),
    "boundary_upper": Told("unit of f(x)"),
    "deviant_mse": Told("unit of f(x), squared", "lower"),
    "deviant_prediction": Told("unit of f(x)"),
    "error_rate": Told(_SHARE, "lower"),
    "large_value_error_rate": Told(_SHARE, "lower"),
    "byte_perplexity": Told("per byte", "lower"),
    "length_extrapolation_bucket_loss": Told("nats per token", "lower"),
    "length_extrapolation_last_loss": Told("nats per token", "lower"),
    "length_extrapolation_loss": Told("nats per token", "lower"),
    "long_context": Told(_SHARE, "higher"),
    "long_context_truncated": Told(_SHARE),
    "masked_accuracy": Told(_SHARE, "higher"),
    "minimal_pairs": Told(_SHARE, "higher"),
    "minimal_pairs_ties": Told(_SHARE),
    "multiple_choice_acc": Told(_SHARE, "higher"),
    "multiple_choice_acc_bytes": Told(_SHARE, "higher"),
    "multiple_choice_acc_full": Told(_SHARE, "higher"),
    "multiple_choice_acc_norm": Told(_SHARE, "higher"),
    "multiple_choice_acc_tokens": Told(_SHARE, "higher"),
    "multiple_choice_loss": Told("nats per answer", "lower"),
    "multiple_choice_truncated": Told(_SHARE),
    "mse": Told("unit of f(x), squared", "lower"),
    "perplexity": Told("per token", "lower"),
    "relative_mse": Told("share of the error of predicting 0", "lower"),
    "sequence_accuracy": Told(_SHARE, "higher"),
    "squared_error": Told("unit of f(x), squared", "lower"),
    "cross_entropy": Told("nats per token", "lower"),
    "kl": Told("nats per token", "lower"),
    "soft_cross_entropy": Told("nats per token", "lower"),
    "validation_kl": Told("nats per token", "lower"),
    "validation_loss": Told("nats per token", "lower"),
    "validation_soft_cross_entropy": Told("nats per token", "lower"),
    "word_perplexity": Told("per word", "lower"),
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
