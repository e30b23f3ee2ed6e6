"""Which way a measurement is better, by its name without a reference predictor."""

from collections.abc import Mapping
from typing import Final

from ablate.store.published.tables import cells
from ablate.store.statistics import Better

_MEASURES: Final[Mapping[str, Better | None]] = {
    **dict.fromkeys(("accuracy", "agreement_accuracy", "balanced_accuracy", "boundary_extent"), "higher"),
    **dict.fromkeys(("long_context", "masked_accuracy", "minimal_pairs", "sequence_accuracy"), "higher"),
    **dict.fromkeys([f"multiple_choice_acc{rule}" for rule in ("", "_bytes", "_full", "_norm", "_tokens")], "higher"),
    **dict.fromkeys(("bits_above_optimum", "bits_per_byte", "byte_perplexity", "deviant_mse", "error_rate"), "lower"),
    **dict.fromkeys(("large_value_error_rate", "mse", "multiple_choice_loss", "perplexity", "relative_mse"), "lower"),
    **dict.fromkeys([f"length_extrapolation{part}_loss" for part in ("", "_bucket", "_last")], "lower"),
    **dict.fromkeys(("cross_entropy", "kl", "soft_cross_entropy", "squared_error", "word_perplexity"), "lower"),
    **dict.fromkeys(("validation_kl", "validation_loss", "validation_soft_cross_entropy"), "lower"),
    **dict.fromkeys(("boundary_lower", "boundary_prediction", "boundary_slope", "boundary_upper")),
    **dict.fromkeys(("deviant_prediction", "long_context_truncated", "minimal_pairs_ties")),
    **dict.fromkeys(("multiple_choice_truncated",)),
}
"""All measurements of this package, also of evaluations that left; None means that neither way is better."""

_HARNESS: Final[Mapping[str, Better]] = {
    **dict.fromkeys(("acc", "acc_all", "acc_bytes", "acc_mutual_info", "acc_norm", "bleu", "chrf", "chrf++"), "higher"),
    **dict.fromkeys(("acc_full", "exact_match", "f1", "likelihood", "mcc", "score"), "higher"),
    **dict.fromkeys(("bits_per_byte", "brier_score", "perplexity", "ter"), "lower"),
}
"""Metrics of lm-eval 0.4.13, from its HIGHER_IS_BETTER_REGISTRY, `acc_full` of `LmEval`, and `score` of LongBench."""


def direction(name: str) -> Better | None:
    """Return which way a measurement is better, or None if unknown.

    `name` is an evaluation, a training metric, or a row of the harness ("lm_eval.piqa.acc"). It may have a predictor
    or a set. A measurement that no task of this package has takes its direction from the published tables.
    """
    parts = name.split(".")
    for part in parts:
        if part in _MEASURES:
            return _MEASURES[part]
    if parts[-1] == "loss":
        return "lower"
    if parts[0] == "lm_eval":
        return next((_HARNESS[part] for part in parts[2:] if part in _HARNESS), None)
    return next((cell.better for cell in cells() if cell.measurement == name), None)
