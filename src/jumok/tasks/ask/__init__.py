"""Answer questions from an index of the user's files, and measure which passage each answer depends on.

``jumok ask FOLDER "..."`` and ``jumok.ask(folder, "...")``:

    retrieval.open_index              lists the files, reads changed ones, computes missing vectors, builds BM25
      -> ask
           FolderIndex.search         BM25 and vectors, fused; a question in Korean by BM25 alone
           VerdictRule.rejects_search "nothing fits" if the scores are too low; then nothing is read
           Reader.read                the passages in the prompt of a GPT, or apart in a Fusion-in-Decoder
           Reader.score_cuts          the same text without each passage: no token outside of it may attend to it
           find_missing_words         numbers and names of the text that a needed passage does not contain
           VerdictRule.judge          from the scores of the search, the cuts and the missing words
"""

from .answer import Answer, CutPassage, Verdict, VerdictRule
from .answer_question import AskSettings, ask, create_reader
from .readers import FusionReader, PromptReader, Reader, Reading

__all__ = [
    "Answer",
    "AskSettings",
    "CutPassage",
    "FusionReader",
    "PromptReader",
    "Reader",
    "Reading",
    "Verdict",
    "VerdictRule",
    "ask",
    "create_reader",
]
