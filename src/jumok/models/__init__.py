"""Model families, one per file: a config and a model that is built from the layers of ``jumok.layers``."""

from .bert import BERT, BERTConfig, simple_transformer_config
from .captioner import Captioner, CaptionerConfig, regions_config
from .classifier import Classifier, ClassifierConfig, sentiment_config
from .config import Config
from .encoder_decoder import EncoderDecoder
from .fusion import Fusion, FusionConfig
from .gpt import GPT, GPTConfig, llama_config
from .long import Long, LongConfig
from .model import Model, Output
from .numeric import Numeric, NumericConfig
from .rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from .speech import Speech, SpeechConfig
from .swin import Swin, SwinConfig
from .t5 import T5, T5Config
from .transformer import Transformer, TransformerConfig
from .vit import ViT, ViTConfig

__all__ = [
    "BERT",
    "GPT",
    "T5",
    "BERTConfig",
    "Captioner",
    "CaptionerConfig",
    "Classifier",
    "ClassifierConfig",
    "Config",
    "EncoderDecoder",
    "Fusion",
    "FusionConfig",
    "GPTConfig",
    "Long",
    "LongConfig",
    "Model",
    "Numeric",
    "NumericConfig",
    "Output",
    "RNNSeq2Seq",
    "RNNSeq2SeqConfig",
    "Speech",
    "SpeechConfig",
    "Swin",
    "SwinConfig",
    "T5Config",
    "Transformer",
    "TransformerConfig",
    "ViT",
    "ViTConfig",
    "llama_config",
    "regions_config",
    "sentiment_config",
    "simple_transformer_config",
]
