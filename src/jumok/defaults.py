"""Default settings that Python functions and the command line share.

This module imports nothing, so that ``jumok --help`` can show the defaults without importing torch.
"""

NEW_TOKENS = 128  # jumok run: the largest number of new tokens
BEAMS = 1  # jumok run: beams of beam search; 1 = no beam search
ANSWER_TOKENS = 32  # jumok look, jumok effect: tokens of an answer; a map of more is hard to read
TOP_SOURCES = 3  # jumok look: keys shown for each token
VERIFIED_EDGES = 32  # jumok effect: edges by gradient, and by weight, that are verified exactly
CONTROL_EDGES = 20  # jumok effect: random edges that each verified edge is compared with
ATTEND_HEADS = 2  # jumok attend: heads of the untrained attention
ATTEND_WIDTH = 32  # jumok attend: width of its model
ATTEND_SCORE = "scaled_dot"
ATTEND_BIAS = "none"
ATTEND_PROJECTION = "fused"
ATTEND_BACKEND = "explicit"
# names of fields in other libraries -> ours; used in hints
FIELD_SYNONYMS = {
    "lr": "learning_rate", "bs": "batch", "batch_size": "batch", "max_steps": "steps", "iterations": "steps",
    "weight_decay": "decay", "grad_clip": "clip", "block_size": "length", "context": "length", "max_length": "length",
    "d_model": "width", "dim": "width", "hidden_size": "width", "n_embd": "width", "n_layer": "layers",
    "depth": "layers", "num_layers": "layers", "n_head": "heads", "num_heads": "heads", "vocab_size": "vocabulary",
}  # fmt: skip
INDEXED_FILES = 200_000  # jumok index: the largest number of files in a folder
FORMATS = ("jumok", "huggingface")  # jumok.save, jumok export
EXPORT_FORMAT = "huggingface"  # jumok export

#: languages of the texts that lessons print
LANGUAGES = ("en", "ko")

#: the models that come with the package, in folders beside jumok/checkpoint. tiny: two blocks on bytes, trained by the
#: recipe "induction"; translator: Korean and English sentences of a small grammar, trained by the recipe "translate"
INCLUDED_MODELS = ("tiny", "translator")
LOADABLE_MODELS = ("smollm2", "minilm", "whisper-tiny-en")  # the catalogue models that one of our families can load
