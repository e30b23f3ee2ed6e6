"""LongBench: prompts, answer lengths and scores, each between 0 and 1, of its English and code data sets.

Source: LongBench (Bai et al. 2024), table 1 and its released code, MIT licence: `config/dataset2prompt.json`,
`config/dataset2maxlen.json` and the scores by data set. Its first release wrote "asconcisely" in the prompt of
narrativeqa; here it is the corrected text. Its scores differ from these in three places. Its edit similarity rounds to
whole per cents and uses Python's `difflib` by default, which does not always find the longest match; here it is exact.
Its search for classes skips the class after one that it strikes out. Its ROUGE-L, the package `rouge`, recurses once
per word and is 0 if two sentences have about 1000 words; here there is no limit.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

_PASSAGES = "Only give me the answer and do not output any other words."
_MANY_PASSAGES = (
    f"Answer the question based on the given passages. {_PASSAGES}\n\nThe following are given passages.\n"
    f"{{context}}\n\nAnswer the question based on the given passages. {_PASSAGES}\n\nQuestion: {{input}}\nAnswer:"
)
_STORY = "as concisely as you can, using a single phrase if possible. Do not provide any explanation."
_ARTICLE = (
    "as concisely as you can, using a single phrase or sentence if possible. If the question cannot be answered based "
    'on the information in the article, write "unanswerable". If the question is a yes/no question, answer "yes", '
    '"no", or "unanswerable". Do not provide any explanation.'
)

PROMPTS: Final[Mapping[str, str]] = {
    "narrativeqa": (
        "You are given a story, which can be either a novel or a movie script, and a question. Answer the question "
        f"{_STORY}\n\nStory: {{context}}\n\nNow, answer the question based on the story {_STORY}\n\n"
        "Question: {input}\n\nAnswer:"
    ),
    "qasper": (
        f"You are given a scientific article and a question. Answer the question {_ARTICLE}\n\nArticle: {{context}}\n\n"
        f" Answer the question based on the above article {_ARTICLE}\n\nQuestion: {{input}}\n\nAnswer:"
    ),
    "multifieldqa_en": (
        "Read the following text and answer briefly.\n\n{context}\n\nNow, answer the following question based on the "
        "above text, only give me the answer and do not output any other words.\n\nQuestion: {input}\nAnswer:"
    ),
    "hotpotqa": _MANY_PASSAGES,
    "2wikimqa": _MANY_PASSAGES,
    "musique": _MANY_PASSAGES,
    "gov_report": (
        "You are given a report by a government agency. Write a one-page summary of the report.\n\n"
        "Report:\n{context}\n\nNow, write a one-page summary of the report.\n\nSummary:"
    ),
    "qmsum": (
        "You are given a meeting transcript and a query containing a question or instruction. Answer the query in one "
        "or more sentences.\n\nTranscript:\n{context}\n\nNow, answer the query based on the above meeting transcript "
        "in one or more sentences.\n\nQuery: {input}\nAnswer:"
    ),
    "multi_news": (
        "You are given several news passages. Write a one-page summary of all news. \n\nNews:\n{context}\n\n"
        "Now, write a one-page summary of all the news.\n\nSummary:"
    ),
    "trec": (
        "Please determine the type of the question below. Here are some examples of questions.\n\n{context}\n{input}"
    ),
    "triviaqa": (
        f"Answer the question based on the given passage. {_PASSAGES} The following are some examples.\n\n"
        "{context}\n\n{input}"
    ),
    "samsum": (
        "Summarize the dialogue into a few short sentences. The following are some examples.\n\n{context}\n\n{input}"
    ),
    "passage_count": (
        "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. Please carefully read "
        "these paragraphs and determine how many unique paragraphs there are after removing duplicates. In other "
        "words, how many non-repeating paragraphs are there in total?\n\n{context}\n\nPlease enter the final count of "
        "unique paragraphs after removing duplicates. The output format should only contain the number, such as 1, 2, "
        "3, and so on.\n\nThe final answer is: "
    ),
    "passage_retrieval_en": (
        "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which paragraph the abstract "
        "is from.\n\n{context}\n\nThe following is an abstract.\n\n{input}\n\nPlease enter the number of the paragraph "
        'that the abstract is from. The answer format must be like "Paragraph 1", "Paragraph 2", etc.\n\n'
        "The answer is: "
    ),
    "lcc": "Please complete the code given below. \n{context}Next line of code:\n",
    "repobench-p": "Please complete the code given below. \n{context}{input}Next line of code:\n",
}
"""By data set; `{context}` and `{input}` are fields of an item. Summaries and `lcc` have no input."""

ANSWER_TOKENS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("narrativeqa", "qasper", "samsum"), 128),
    **dict.fromkeys(("multifieldqa_en", "trec", "lcc", "repobench-p"), 64),
    **dict.fromkeys(("hotpotqa", "2wikimqa", "musique", "triviaqa", "passage_count", "passage_retrieval_en"), 32),
    **dict.fromkeys(("gov_report", "qmsum", "multi_news"), 512),
}
"""Most tokens of an answer, by data set."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def qa_f1(prediction: str, answer: str) -> float:
    """Compute the harmonic mean of precision and recall over words, without case, punctuation and articles (SQuAD)."""
    words, right = _words(prediction), _words(answer)
    common = sum((Counter(words) & Counter(right)).values())
    return 2 * common / (len(words) + len(right)) if common else 0.0


def rouge_l(prediction: str, answer: str) -> float:
    """Compute ROUGE-L over sets of words and the union over all pairs of sentences, as the package `rouge` does.

    A full stop ends a sentence. Case and other punctuation count. A word counts once, however often it occurs.
    """
    said, right = _sentences(prediction), _sentences(answer)
    if not said or not right:
        return 0.0
    common = len(set().union(*(_common_words(each, other) for each in right for other in said)))
    precision, recall = (common / len(set().union(*sentences)) for sentences in (said, right))
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def classification(prediction: str, answer: str, classes: Sequence[str] = ()) -> float:
    """Return 1 / n if the answer is one of n classes in the prediction, without parts of the right one; else 0."""
    named = [name for name in classes if name in prediction and (name == answer or name not in answer)]
    return 1 / len(named) if answer in named else 0.0


def retrieval(prediction: str, answer: str) -> float:
    """Return the share of the prediction's numbers that are the answer's, which has the form "Paragraph 7"."""
    match = re.search(r"Paragraph (\d+)", answer)
    if match is None:
        raise ValueError(f"an answer of retrieval reads 'Paragraph' and a number; got {answer!r:.60}")
    return count(prediction, match.group(1))


def count(prediction: str, answer: str) -> float:
    """Return the share of the prediction's numbers that are the answer."""
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(answer) / len(numbers) if numbers else 0.0


def edit_similarity(prediction: str, answer: str) -> float:
    """Return 1 - edits / (length + length) of the first line of code; an edit inserts or removes a character.

    This is the first line after empty ones without `, # and //. Two empty texts have 1.
    """
    lines = prediction.lstrip("\n").split("\n")
    line = next((each for each in lines if not any(mark in each for mark in ("`", "#", "//"))), "")
    both = len(line) + len(answer)
    return 2 * _common_lengths(line, answer)[-1][-1] / both if both else 1.0


SCORES: dict[str, Callable[..., float]] = {
    **dict.fromkeys(("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "triviaqa"), qa_f1),
    **dict.fromkeys(("gov_report", "qmsum", "multi_news", "samsum"), rouge_l),
    "trec": classification,
    "passage_count": count,
    "passage_retrieval_en": retrieval,
    **dict.fromkeys(("lcc", "repobench-p"), edit_similarity),
}
"""By data set. Chinese data sets, which need word segmentation, are left out."""

ONE_LINE = frozenset({"trec", "triviaqa", "samsum"})
"""Data sets that score only the first non-empty line of a prediction."""


def score(dataset: str, prediction: str, answers: Sequence[str], classes: Sequence[str] = ()) -> float:
    """Return the score by the right answer that fits best."""
    if dataset in ONE_LINE:
        prediction = prediction.lstrip("\n").split("\n")[0]
    rule, more = SCORES[dataset], (classes,) if SCORES[dataset] is classification else ()
    return max(rule(prediction, answer, *more) for answer in answers)


def _common_lengths(one: Sequence[str], other: Sequence[str]) -> list[list[int]]:
    """Return the length of the longest common subsequence of each beginning of `one` and of `other`."""
    table = [[0] * (len(other) + 1)]
    for symbol in one:
        above, row = table[-1], [0]
        for at, each in enumerate(other):
            row.append(above[at] + 1 if symbol == each else max(above[at + 1], row[at]))
        table.append(row)
    return table


def _words(text: str) -> list[str]:
    return re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split()


def _sentences(text: str) -> list[list[str]]:
    """Split a text at full stops into words; white space between two of them is a sentence of one empty word."""
    return [part.split() or [""] for part in text.split(".") if part]


def _common_words(right: Sequence[str], said: Sequence[str]) -> set[str]:
    """Return the words of one longest common subsequence: the one that `rouge` takes among equally long ones."""
    table = _common_lengths(right, said)
    words, i, j = set(), len(right), len(said)
    while i and j:
        if right[i - 1] == said[j - 1]:
            words.add(right[i - 1])
            i, j = i - 1, j - 1
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words
