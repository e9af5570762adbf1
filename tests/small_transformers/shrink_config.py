"""Shrink the default config of a model class, so that the model has few parameters and the fields still agree.

Widths, heads and head widths are divided by common factors, for a config and all its sub-configs. Relations between
fields therefore survive: the width is heads times head width, and the text model's width is what the projector expects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from .config_tree import list_fields, walk_configs
from .field_rules import classify_field

VOCABULARY = 200
FIRST_LARGE_TOKEN = 90  # token ids from here on move to the end of the small vocabulary
POSITIONS = 512
WINDOW = 4
IMAGE_SIZE = 64
EXPERTS = 8
INNER_WIDTH_LIMIT = 96
HEAD_DIVISORS = (1, 2, 3, 4, 8, 16, 32)
SMALLEST_HEAD_WIDTH = 8
WIDTH_FIELDS = ("hidden_size", "d_model", "n_embd", "embed_dim", "dim")


@dataclass(frozen=True)
class Factors:
    """What the sizes of one config are divided by.

    Attributes:
        heads: The divisor of numbers of heads.
        head_width: The divisor of head widths.
        tokens: The new id of each token whose id does not fit into the small vocabulary.
    """

    heads: int
    head_width: int
    tokens: dict[int, int]

    @property
    def width(self) -> int:
        """The divisor of widths."""
        return self.heads * self.head_width


def shrink_config(config: PreTrainedConfig, overrides: dict[str, Any]) -> PreTrainedConfig:
    """Build a small config of the same class.

    Args:
        config: A config with its default sizes.
        overrides: Fields to set instead of the shrunken ones; a dictionary changes fields of a sub-config.
    """
    return _rebuild(config, choose_factors(config), overrides)


def choose_factors(config: PreTrainedConfig) -> Factors:
    """Choose the divisors of a config and its sub-configs.

    Args:
        config: A config with its default sizes.
    """
    heads: list[int] = []
    sections: list[int] = []
    head_widths: list[int] = []
    tokens: set[int] = set()
    for part in walk_configs(config):
        part_heads = []
        for name, entry in list_fields(part):
            kind = classify_field(name)
            integers = [number for number in _flatten(entry) if number > 0]
            if isinstance(entry, dict):
                sections += _list_sections(entry)
            if kind == "heads":
                heads += [number for number in integers if number > 1]
                part_heads += integers if name in ("num_attention_heads", "n_head", "num_heads", "n_heads") else []
            elif kind == "head_width":
                head_widths += integers
            elif kind == "token":
                tokens |= {number for number in integers if number >= FIRST_LARGE_TOKEN}
        widths = [getattr(part, name, None) for name in WIDTH_FIELDS]
        head_widths += [
            width // part_heads[0]
            for width in widths
            if part_heads and isinstance(width, int) and width % part_heads[0] == 0
        ]
    head_divisor = max(
        number
        for number in HEAD_DIVISORS
        if number == 1
        or (all(_leaves_heads(count, number) for count in heads) and max(heads, default=16) >= 3 * number)
    )
    usable = [
        number
        for number in range(1, 1 + min(head_widths, default=64) // SMALLEST_HEAD_WIDTH)
        if all(width % (4 * number) == 0 for width in head_widths) and all(size % number == 0 for size in sections)
    ]
    if not head_widths:
        usable = [8]
    large = sorted(tokens)
    moved = {token: VOCABULARY - len(large) + index for index, token in enumerate(large)}
    return Factors(head_divisor, max(usable, default=1), moved)


def _leaves_heads(count: int, divisor: int) -> bool:
    """Say whether a number of heads can be divided, so that at least two remain."""
    return count % divisor == 0 and count >= 2 * divisor


def _list_sections(entry: dict[str, Any]) -> list[int]:
    """List the sections of multimodal rotary positions in a dictionary."""
    sections: list[int] = []
    for name, part in entry.items():
        if isinstance(part, dict):
            sections += _list_sections(part)
        elif str(name).endswith("_section"):
            sections += _flatten(part)
    return sections


def _flatten(entry: Any) -> list[int]:
    """List the integers in a number or in nested lists."""
    if isinstance(entry, bool):
        return []
    if isinstance(entry, int):
        return [entry]
    if isinstance(entry, list | tuple):
        return [number for part in entry for number in _flatten(part)]
    return []


def _rebuild(config: PreTrainedConfig, factors: Factors, overrides: dict[str, Any]) -> PreTrainedConfig:
    """Build a small config from the fields of a large one."""
    layers = _choose_layers(config)
    defaults = dict(list_fields(_build_default(type(config), config)))
    fields: dict[str, Any] = {}
    for name, entry in list_fields(config):
        override = overrides.get(name)
        if isinstance(entry, PreTrainedConfig) and "model_type" not in (override or {}):
            fields[name] = _rebuild(entry, factors, override or {})
        elif name in overrides:
            fields[name] = override
        else:
            small = _shrink_entry(name, entry, factors, layers)
            if small != entry or small != defaults.get(name):
                fields[name] = small
    fields |= {name: entry for name, entry in overrides.items() if name not in fields}
    if not {"out_indices", "out_features"} & overrides.keys():
        _choose_features(config, fields, layers)
    _fill_missing(config, fields)
    _connect_parts(fields)
    return type(config)(**fields)


def _connect_parts(fields: dict[str, Any]) -> None:
    """Let image and audio encoders return vectors of the text model's width; some default configs contradict this."""
    width = getattr(fields.get("text_config"), "hidden_size", None)
    for name in ("vision_config", "audio_config"):
        part = fields.get(name)
        if width is None or not isinstance(part, PreTrainedConfig):
            continue
        names = {field for field, _ in list_fields(part)}
        if "out_hidden_size" in names:
            part.out_hidden_size = width
        elif {"embed_dim", "hidden_size"} <= names:  # Qwen2-VL: hidden_size is the width of the output
            part.hidden_size = width


def _build_default(config_class: type[PreTrainedConfig], config: PreTrainedConfig) -> PreTrainedConfig:
    """Build a config with default fields; where the defaults contradict each other, return the config itself."""
    try:
        return config_class()
    except Exception:
        return config


def _fill_missing(config: PreTrainedConfig, fields: dict[str, Any]) -> None:
    """Set fields whose default is None, but which the model needs: padding, start token and head width."""
    defaults = dict(list_fields(config))

    def read(*names: str) -> Any:
        return next((fields.get(name, defaults.get(name)) for name in names if name in defaults), None)

    if read("vocab_size") is not None and read("pad_token_id") is None:
        fields["pad_token_id"] = 3
    if read("is_encoder_decoder") and read("decoder_start_token_id") is None and read("vocab_size") is not None:
        fields["decoder_start_token_id"] = 3
    heads, width = read("num_attention_heads", "n_head"), read("hidden_size")
    if isinstance(heads, int) and isinstance(width, int):
        if "head_dim" in defaults and read("head_dim") is None:
            fields["head_dim"] = width // heads
        if "num_key_value_heads" in defaults and read("num_key_value_heads") is None:
            fields["num_key_value_heads"] = heads


def _choose_layers(config: PreTrainedConfig) -> dict[int, list[int]]:
    """Choose which layers remain, for every number of layers in a field: one layer of each kind, at least two."""
    fields = list_fields(config)
    counts = {
        entry for name, entry in fields if classify_field(name) == "layers" and isinstance(entry, int) and entry > 2
    }
    outputs = len(getattr(config, "_out_indices", None) or ())
    chosen: dict[int, list[int]] = {}
    for count in counts:
        lists = [entry for _, entry in fields if isinstance(entry, list | tuple) and len(entry) == count]
        kinds: dict[str, int] = {}
        for index in range(count):
            kinds.setdefault(repr([entry[index] for entry in lists]), index)
        indices = sorted(kinds.values())[:6]
        smallest = max(2, outputs)
        indices += [index for index in range(count) if index not in indices][: max(0, smallest - len(indices))]
        chosen[count] = sorted(indices)
    return chosen


def _choose_features(config: PreTrainedConfig, fields: dict[str, Any], layers: dict[int, list[int]]) -> None:
    """Set the stages that a backbone returns, where each layer is a stage and layers were removed."""
    stages, indices = vars(config).get("stage_names"), vars(config).get("_out_indices")
    if not stages or not indices:
        return
    fields.pop("out_features", None)
    has_stages = any(classify_field(name) == "depths" for name, entry in list_fields(config) if entry is not None)
    if has_stages or len(stages) - 1 not in layers:
        fields["out_indices"] = list(indices)
        return
    count = len(layers[len(stages) - 1])
    fields["out_indices"] = list(range(count - len(indices) + 1, count + 1))


def _shrink_entry(name: str, entry: Any, factors: Factors, layers: dict[int, list[int]]) -> Any:
    """Shrink one field."""
    if entry is None or isinstance(entry, bool | str):
        return entry
    kind = classify_field(name)
    if name == "image_grid_pinpoints":
        return [[IMAGE_SIZE, IMAGE_SIZE]]
    if isinstance(entry, list | tuple) and len(entry) in layers and kind not in ("depths", "token"):
        entry = [entry[index] for index in layers[len(entry)]]
    elif isinstance(entry, list | tuple) and kind == "keep" and layers and _are_layer_indices(name, entry):
        return _shrink_layer_indices(entry, layers)
    if isinstance(entry, dict) and all(isinstance(key, str) for key in entry):
        return _shrink_dictionary(entry, factors)
    if isinstance(entry, list | tuple):
        small = [_shrink_entry(name, part, factors, layers) for part in entry]
        return entry if small == list(entry) else small
    if not isinstance(entry, int):
        return entry
    return _shrink_number(kind, entry, factors, layers)


def _are_layer_indices(name: str, entry: list[Any] | tuple[Any, ...]) -> bool:
    words = ("indexes", "indices", "layer_ids", "hook_ids", "_layers", "layer_idx")
    return bool(entry) and any(name.endswith(word) for word in words) and all(isinstance(part, int) for part in entry)


def _shrink_layer_indices(entry: Any, layers: dict[int, list[int]]) -> Any:
    """Map the indices of layers to the layers that remain."""
    count = min((number for number in layers if number > max(entry)), default=max(layers))
    small = len(layers[count])
    indices = [index if index < 0 else min(small - 1, index * small // count) for index in entry]
    return list(dict.fromkeys(max(index, -small) for index in indices))


def _shrink_dictionary(entry: dict[str, Any], factors: Factors) -> dict[str, Any]:
    """Shrink the sizes in a dictionary, such as the parameters of rotary positions."""
    small: dict[str, Any] = {}
    for name, part in entry.items():
        if isinstance(part, dict):
            small[name] = _shrink_dictionary(part, factors)
        elif name.endswith("_section"):
            small[name] = [max(1, number // factors.head_width) for number in part]
        elif name in ("long_factor", "short_factor"):
            small[name] = part[:: factors.head_width]
        else:
            small[name] = part
    return small


def _shrink_number(kind: str, number: int, factors: Factors, layers: dict[int, list[int]]) -> int:
    """Shrink one integer by the kind of its field."""
    if kind == "width":
        return number if number <= 4 else max(2, number // factors.width)
    if kind == "inner_width":
        return number if number <= 4 else min(INNER_WIDTH_LIMIT, max(8, number // factors.width))
    if kind == "heads":
        return max(1, number // factors.heads) if number > 0 else number
    if kind == "head_width":
        return max(2, number // factors.head_width) if number > 1 else number
    if kind == "layers":
        return len(layers[number]) if number in layers else number
    if kind == "token":
        return factors.tokens.get(number, number)
    if kind == "images":
        return min(number, IMAGE_SIZE)
    limits = {
        "vocabulary": VOCABULARY, "positions": POSITIONS, "group": 4, "top_k": 2, "experts": EXPERTS, "window": WINDOW,
        "depths": 2, "few": 2, "queries": 8,
    }  # fmt: skip
    return min(number, limits[kind]) if kind in limits else number
