"""Scores of answers: against other implementations and by hand."""

import random
from collections import Counter
from difflib import SequenceMatcher

import pytest
from hypothesis import given, strategies as st
from rouge import Rouge

from runners.evaluations.longbench import (
    ONE_LINE,
    SCORES,
    classification,
    edit_similarity,
    qa_f1,
    rouge_l,
    score,
)


@given(st.text("ab c", max_size=40), st.text("ab c", max_size=40))
def test_edit_similarity_counts_insertions_and_removals(one: str, other: str) -> None:
    """By a table of edits; difflib finds as long a match or a shorter one."""
    edits = [[i + j for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i, a in enumerate(one, start=1):
        for j, b in enumerate(other, start=1):
            edits[i][j] = edits[i - 1][j - 1] if a == b else 1 + min(edits[i - 1][j], edits[i][j - 1])
    whole = len(one) + len(other)
    expected = 1 - edits[-1][-1] / whole if whole else 1.0
    assert edit_similarity(one, other) == pytest.approx(expected)
    assert edit_similarity(one, other) >= SequenceMatcher(None, one, other, autojunk=False).ratio() - 1e-12


def passage(made: random.Random) -> str:
    """Write a few sentences; some are empty, some are white space, and words differ in case and punctuation."""
    words = ["The", "the", "cat's", "cats", "sat", "on", "2", "mats,", "mats", "ran-off", "été", "ON", "3.5", "\n"]
    sentences = [" ".join(made.choices(words, k=made.choice((0, 1, 3, 12)))) for _ in range(made.randrange(0, 5))]
    return made.choice((".", ". ", " . ", "..", "! ")).join(sentences) + made.choice(("", ".", " "))


def by_rouge(prediction: str, answer: str) -> float:
    """The package's value as LongBench takes it: 0 if the package refuses a text without sentences."""
    try:
        return float(Rouge().get_scores([prediction], [answer], avg=True)["rouge-l"]["f"])
    except ValueError:
        return 0.0


def test_rouge_l_is_that_of_the_package() -> None:
    made, seen = random.Random(0), set()
    pairs = [("", ""), ("", "a"), ("a", ""), (".", "a"), (" ", "a"), (" ", " "), ("a. .b", "a. ."), ("...", "...")]
    pairs += [(passage(made), passage(made)) for _ in range(200)]
    for prediction, answer in pairs:
        expected = by_rouge(prediction, answer)
        assert rouge_l(prediction, answer) == expected, (prediction, answer)
        seen.add(expected)
    assert len(seen) > 50


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("The cat.", "a CAT", 1.0),
        ("cat dog dog", "dog", 0.5),  # precision 1/3, recall 1
        ("cat dog", "dog cat bird bird", 2 / 3),  # order does not count, repetitions do
        ("theatre", "the atre", 0.0),
        ("the a an", "the", 0.0),  # nothing is left
        ("it's", "its", 1.0),
    ],
)
def test_qa_f1_compares_bags_of_words(prediction: str, answer: str, expected: float) -> None:
    assert qa_f1(prediction, answer) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        ("It is about a City, I think", 1.0),
        ("City or State", 0.5),
        ("Other location", 1.0),  # "location" is part of the right class
        ("state", 0.0),
        ("", 0.0),
    ],
)
def test_classification_shares_its_point_among_classes_that_are_named(prediction: str, expected: float) -> None:
    answer = "Other location" if "Other" in prediction else "City"
    assert classification(prediction, answer, ["City", "State", "location", "Other location"]) == expected
    assert classification("a long name", "a long name", ["a", "a long", "a long name"]) == 1  # two parts after another


def test_code_is_the_first_line_that_says_something() -> None:
    said = "\n\n```python\n# a comment\nreturn x\nreturn y"
    assert edit_similarity(said, "return x") == 1
    assert edit_similarity(said, "return y") == pytest.approx(14 / 16)
    assert edit_similarity("# only", "return x") == 0


def test_the_best_answer_counts_and_only_the_first_line_where_one_is_asked_for() -> None:
    assert score("qasper", "red\nblue", ["green", "blue"]) == pytest.approx(2 / 3)
    assert score("triviaqa", "\n\nred\nblue", ["green", "red"]) == 1
    assert score("trec", "City\nState", ["City"], ["City", "State"]) == 1
    with pytest.raises(ValueError, match="'Paragraph' and a number; got 'seven'"):
        score("passage_retrieval_en", "7", ["seven"])
    rules = Counter(rule.__name__ for rule in SCORES.values())
    assert rules == {"qa_f1": 7, "rouge_l": 4, "classification": 1, "count": 1, "retrieval": 1, "edit_similarity": 2}
    assert SCORES.keys() > ONE_LINE
