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
IMAGE_EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")  # the image files that Jumok reads
AUDIO_EXTENSIONS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3")
INDEXED_FILES = 200_000  # jumok index: the largest number of files in a folder
FORMATS = ("jumok", "huggingface")  # jumok.save, jumok export
EXPORT_FORMAT = "huggingface"  # jumok export

#: languages of the texts that lessons print
LANGUAGES = ("en", "ko")

#: the models that come with the package, in folders of jumok/checkpoint, with their titles on the page and their
#: descriptions in jumok data; recipes: tiny "induction", translator "translate", korean "text-fast"
INCLUDED_MODELS = {
    "tiny": {
        "title": "tiny (bytes, 2 layers)",
        "en": "a two-block byte model that continues repeated text; comes with the package",
        "ko": "반복되는 텍스트를 이어 쓰는 바이트 모델(블록 2개), 패키지에 포함",
    },
    "translator": {
        "title": "translator (Korean, English)",
        "en": "translates simple sentences between Korean and English; comes with the package",
        "ko": "한국어와 영어의 간단한 문장을 서로 번역하는 모델, 패키지에 포함",
    },
    "korean": {
        "title": "korean (stories, 4 layers)",
        "en": "continues short Korean stories of everyday life; comes with the package",
        "ko": "짧은 한국어 일상 이야기를 이어 쓰는 모델, 패키지에 포함",
    },
}
#: the catalogue models that one of our families can load
LOADABLE_MODELS = (
    "smollm2",
    "gemma3-270m",
    "minilm",
    "e5-multilingual",
    "whisper-tiny-en",
    "whisper-base",
    "stories15m",
)
