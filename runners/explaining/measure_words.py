"""The unit of everything that tasks and evaluations measure, and which way is better, by name without predictor."""

from collections.abc import Mapping
from typing import Literal, NamedTuple


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

PROBED: Mapping[str, tuple[str, str]] = {
    "activation_first": ("", "length of a vector"),
    "activation_others": ("", "length of a vector"),
    "activation_ratio": ("", "ratio"),
    "below_threshold": ("", _SHARE),
    "effective_rank": ("", "directions, 1 to T"),
    "effective_rank_median": ("", "directions, 1 to T"),
    "entropy": ("", "nats"),
    "entropy_last": ("", "nats"),
    "entropy_last_sd": ("", "nats"),
    "first_key_norm": ("", "length of a vector"),
    "first_qk_cosine": ("", "-1 to 1"),
    "first_token_negative": ("", _SHARE),
    "first_token_weight": ("", "weight, signed"),
    "first_value_norm": ("", "length of a vector"),
    "gate_sparsity": ("", _SHARE),
    "gradient_norm_cv": ("", "ratio"),
    "gradient_norm_mean": ("", "norm of the gradient"),
    "gradient_norm_not_finite": ("", "steps"),
    "gradient_norm_sd": ("", "norm of the gradient"),
    "gradient_norm_variance": ("", "norm of the gradient, squared"),
    "gradient_spikes": ("", "steps"),
    "ground_mass": ("", "weight"),
    "importance": ("", _SHARE),
    "number": (".STAGE.FIELD", "the number's own"),
    "other_key_norm": ("", "length of a vector"),
    "other_qk_cosine": ("", "-1 to 1"),
    "other_value_norm": ("", "length of a vector"),
    "predicted": (".STAGE.FIELD", "the number's own"),
    "predicted_sd": (".STAGE.FIELD", "the number's own"),
    "qk_logit_mean": ("", "nats"),
    "qk_logit_sd": ("", "nats"),
    "raw_importance": ("", "weight, signed"),
    "raw_sink_sequences": ("", "sequences"),
    "raw_sink_share": ("", _SHARE),
    "sink_sequences": ("", "sequences"),
    "sink_share": ("", _SHARE),
    "token_class": (".BY.CLASS", _SHARE),
    "token_class_softmax": (".BY.CLASS", _SHARE),
    "unnormed_activation_first": ("", "length of a vector"),
    "unnormed_activation_others": ("", "length of a vector"),
    "unnormed_activation_ratio": ("", "ratio"),
    "weight_sum": ("", "weight, signed"),
    "weight_sum_count": ("", "queries"),
    "weight_sum_mean": ("", "weight, signed"),
    "weight_sum_median": ("", "weight, signed"),
}
"""What follows the first word of a probe's row, and its unit."""
