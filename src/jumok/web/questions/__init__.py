"""Answer the page's questions from the files of a folder: the answer, and the answer without a passage."""
