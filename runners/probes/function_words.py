"""A list of English function words by word class.

The list is our own, after the classes of Universal Dependencies. A word of several classes stands in one of them. A
word that is mostly a content word ("like", "round", "need") stands in none. Words of quantity and comparison that are
adjectives or adverbs there ("many", "more", "other", "several", "such") stand in none either. Words that join sentences
and are sometimes adverbs there ("when", "how", "once") stand as conjunctions. Contractions stand as a tokenizer cuts
them: "do" and "n't", "it" and "'s".
"""

from typing import Final

_WORDS: Final = {
    "DET": """
        a an the this that these those each every either neither some any no all both half what which whatever
        whichever another
    """,
    "PRON": """
        i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself
        we us our ours ourselves they them their theirs themselves themself one oneself who whom whose whoever whomever
        somebody someone something anybody
        anyone anything nobody none nothing everybody everyone everything there thee thou thy thine ye naught
        aught thyself whoso whosoever whomsoever whatsoever ourself
    """,
    "ADP": """
        aboard about above across after against along alongside amid amidst among amongst around as astride at atop
        before behind below beneath beside besides between beyond by concerning despite down during except for from in
        inside into near notwithstanding of off on onto opposite out outside over past per regarding since through
        throughout till to toward towards under underneath until up upon versus via with within without worth vs
        aft anent apropos barring betwixt circa excluding including minus nigh pro qua sans unlike unto
    """,
    "CCONJ": "and or but nor yet plus",
    "SCONJ": """
        because although though if unless whereas while whilst whether than lest provided supposing albeit when whenever
        where wherever how however why so once whereby wherein whereof whereon whereupon whereat whence
        whither insofar inasmuch
    """,
    "PART": "not n't n’t 's ’s",
    "AUX": """
        am is are was were be been being do does did have has had having can could may might must shall should will
        would ought cannot 'm 're 've 'd 'll ’m ’re ’ve ’d ’ll ca wo sha ai
        hath hast doth dost shalt wilt canst couldst wouldst shouldst wast wert gonna gotta
    """,
}

CLASS_OF: Final = {word: name for name, words in _WORDS.items() for word in words.split()}
"""The class of each word, in lower case."""
