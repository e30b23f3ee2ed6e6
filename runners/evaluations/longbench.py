"""Prompts and answer lengths of LongBench's English and code data sets.

Source: `config/dataset2prompt.json` and `config/dataset2maxlen.json` of the released code (Bai et al. 2024), MIT
licence. Its first release wrote "asconcisely" in the prompt of narrativeqa; here it is the corrected text.
"""

from collections.abc import Mapping
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
