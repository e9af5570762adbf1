"""Answer questions from an index of the user's files by a quotation; measure which passage a model's text depends on.

``jumok ask FOLDER "..."`` and ``jumok.ask(folder, "...")``:

    retrieval.open_index              lists the files, reads changed ones, computes missing vectors, builds BM25
      -> ask
           FolderIndex.search         BM25 and vectors, fused
           find_quotation             the sentence that answers, of the best passages; without a reader, that is all
           VerdictRule.rejects_search "nothing fits" if the scores are too low; then nothing is read
           Reader.read                the passages in the prompt of a GPT, or apart in a Fusion-in-Decoder
           Reader.score_cuts          the same text without each passage: no token outside of it may attend to it
           find_unsupported_words     words of the text that a needed passage and its quotation do not contain
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
