"""Which way a measurement is better: as its task, the harness or a published table says; nothing is guessed."""

import pytest

from ablate.store.analysis.metrics import direction
from ablate.store.published.tables import cells


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("accuracy", "higher"),
        ("least_squares.mse", "lower"),
        ("minimal_pairs.agr_subj_verb-across_PP", "higher"),
        ("loss", "lower"),
        ("lm_eval.gsm8k.exact_match.strict", "higher"),
        ("lm_eval.piqa.loss", "lower"),
        ("lm_eval.piqa.acc_full", "higher"),
        ("lm_eval.longbench_qasper.score", "higher"),
        ("multiple_choice_loss.piqa", "lower"),
        ("long_context.qasper", "higher"),
        ("lm_eval.wikitext.word_perplexity", "lower"),
        ("lm_eval.acc.truncated", None),
        ("boundary_slope", None),
        ("sink_share", None),
        ("exact_match", None),
    ],
)
def test_a_direction_is_that_of_the_task_the_harness_or_a_table(name: str, way: str | None) -> None:
    assert direction(name) == way


def test_tasks_and_published_tables_do_not_disagree() -> None:
    told = [(each.measurement, each.better) for each in cells() if each.measurement and each.better]
    assert told
    assert all(direction(name) == better for name, better in told)
