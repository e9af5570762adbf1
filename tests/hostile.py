"""Hostile model folders: each function makes one thing wrong with a good folder. Run as a program it loads the folders
it is given, and tells for each what was said, how long it took, how far memory grew and which files were opened."""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIG = {
    "model_type": "gpt2", "vocab_size": 11, "n_positions": 8, "n_embd": 4, "n_layer": 1, "n_head": 2, "n_inner": 8,
}  # fmt: skip


def good(folder: Path) -> None:
    """A folder that loads: a GPT-2 of a few hundred numbers, and a tokenizer."""
    import torch

    import jumok
    from jumok.data.tokenizers.tokenizer import Tokenizer
    from jumok.models import GPT, GPTConfig

    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=11, length=8, width=4, layers=1, heads=2, hidden=8))
    jumok.save(model, folder, format="huggingface", tokenizer=Tokenizer.for_characters("abcdefghij"))


def own(folder: Path) -> None:
    import torch

    import jumok
    from jumok.models import GPT, GPTConfig

    torch.manual_seed(0)
    jumok.save(GPT(GPTConfig(vocabulary=11, length=8, width=4, layers=1, heads=2, hidden=8)), folder)


def pictures(folder: Path) -> None:
    """A ViT that names its classes and says how it wants its images, in Hugging Face's format."""
    import torch

    import jumok
    from jumok.data.images.preparation import Preparation
    from jumok.models.vit import ViT, ViTConfig

    torch.manual_seed(0)
    model = ViT(ViTConfig(image=(8, 8), patch=(4, 4), width=4, layers=1, heads=2, hidden=8, classes=2))
    jumok.save(model, folder, "huggingface", preparation=Preparation((8, 8)), labels=["cat", "dog"])


def own_pictures(folder: Path) -> None:
    import jumok

    pictures(folder.parent / "theirs")
    jumok.save(jumok.load(folder.parent / "theirs"), folder)


def config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        told = json.loads((folder / "config.json").read_text())
        told.update(changes)
        (folder / "config.json").write_text(json.dumps({name: one for name, one in told.items() if one is not ...}))

    return change


def many_labels(count: int) -> Callable[[Path], None]:
    return lambda folder: config(id2label={str(place): "x" for place in range(count)})(folder)


def write(name: str, content: bytes | str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return change


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def folder_of(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def link(name: str, target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


def link_out(name: str) -> Callable[[Path], None]:
    """The very same file, but outside: whoever follows the link would find nothing wrong."""

    def change(folder: Path) -> None:
        outside = folder.parent / f"outside-{folder.name}-{name}"
        os.rename(folder / name, outside)
        (folder / name).symlink_to(outside)

    return change


def header(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Change the header of model.safetensors, and leave its tensors."""

    def apply(folder: Path) -> None:
        raw = (folder / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        told = json.loads(raw[8 : 8 + length])
        change(told)
        text = json.dumps(told).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])

    return apply


def tensors(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return apply


def index(weight_map: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        os.rename(folder / "model.safetensors", folder / "shard.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return apply


NAME = "transformer.wte.weight"


def _set(name: str, field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda told: told[name].__setitem__(field, value)


FOLDERS: dict[str, Callable[[Path], None]] = {
    # config.json
    "no config": remove("config.json"),
    "config is a list": write("config.json", "[1, 2]"),
    "config is no JSON": write("config.json", "{'a': 1"),
    "config is bytes": write("config.json", b"\xff\xfe\x00\x01"),
    "config is nested a hundred thousand deep": write("config.json", "[" * 100_000),
    "config is 20 MB": write("config.json", '{"a": "' + "x" * 20_000_000 + '"}'),
    "config is a link outside": link("config.json", "/etc/hostname"),
    "config is a link to a good one outside": link_out("config.json"),
    "tensors are a link to good ones outside": link_out("model.safetensors"),
    "a tokenizer is a link to a good one outside": link_out("tokenizer.json"),
    "config is a folder": folder_of("config.json"),
    "no model type": config(model_type=...),
    "unknown model type": config(model_type="pwned"),
    "model type is a path": config(model_type="../../../gpt2"),
    "model type is a list": config(model_type=["gpt2"]),
    "wants its own code": config(model_type="custom", auto_map={"AutoModel": "evil.py--Model"}),
    "a negative width": config(n_embd=-4),
    "width is text": config(n_embd="4"),
    "width is not a number": config(n_embd=float("nan")),
    "a terabyte of vocabulary": config(vocab_size=10**12),
    "a billion layers": config(n_layer=10**9),
    "a hundred thousand layers": config(n_layer=100_000),
    "a width of 2**30": config(n_embd=2**30, n_head=1),
    "heads that do not divide": config(n_head=3),
    "no heads": config(n_head=0),
    "unknown activation": config(activation_function="eval"),
    "arithmetic that is not ours": config(scale_attn_by_inverse_layer_idx=True),
    "vocabulary of another size than the file's": config(vocab_size=12),
    # model.safetensors
    "no tensors": remove("model.safetensors"),
    "only a pickle": lambda folder: os.rename(folder / "model.safetensors", folder / "pytorch_model.bin"),
    "an empty file": write("model.safetensors", b""),
    "seven bytes": write("model.safetensors", b"1234567"),
    "a header of 2**63 bytes": tensors(lambda raw: struct.pack("<Q", 2**63) + raw[8:]),
    "a header longer than the file": tensors(lambda raw: struct.pack("<Q", len(raw)) + raw[8:]),
    "a header that is no JSON": tensors(lambda raw: raw[:8] + b"x" * 20 + raw[28:]),
    "a header nested deep": write("model.safetensors", struct.pack("<Q", 200_000) + b"[" * 200_000),
    "cut off": tensors(lambda raw: raw[:-5]),
    "bytes too many": tensors(lambda raw: raw + b"12345"),
    "a pickle under that name": write("model.safetensors", b"\x80\x04cos\nsystem\n(S'true'\ntR."),
    "a shape of terabytes": header(_set(NAME, "shape", [2**40, 4])),
    "a negative shape": header(_set(NAME, "shape", [-11, -4])),
    "offsets that overlap": header(_set(NAME, "data_offsets", [0, 176])),
    "offsets outside": header(_set(NAME, "data_offsets", [2**50, 2**50 + 176])),
    "an unknown number type": header(_set(NAME, "dtype", "F128")),
    "a tensor described by text": header(lambda told: told.__setitem__(NAME, "x")),
    "a tensor missing": header(lambda told: told.__setitem__("other", told.pop(NAME))),
    "a tensor of another shape": header(_set(NAME, "shape", [4, 11])),
    "tensors are a link outside": link("model.safetensors", "/etc/hostname"),
    "tensors are a device": link("model.safetensors", "/dev/zero"),
    # shards
    "a shard climbs out": index({NAME: "../../../../etc/passwd.safetensors"}),
    "a shard with an absolute path": index({NAME: "/etc/passwd.safetensors"}),
    "a shard that is not there": index({NAME: "no.safetensors"}),
    "a shard that is a pickle": index({NAME: "shard.bin"}),
    "a shard that does not hold it": index({"other": "shard.safetensors"}),
    "a weight map of numbers": index({NAME: 5}),
    "a weight map that is a list": index([NAME]),
    "a weight map of a hundred thousand files": index({f"n{i}": f"f{i}.safetensors" for i in range(100_000)}),
    # tokenizer
    "a tokenizer that is no JSON": write("tokenizer.json", "{"),
    "a tokenizer of another kind": write("tokenizer.json", '{"version": "1.0", "model": {"type": "Evil"}}'),
    "a tokenizer that is a link outside": link("tokenizer.json", "/etc/hostname"),
    "a tokenizer of bytes": write("tokenizer.json", bytes(range(256)) * 100),
}

# what is done to a folder of our own format
OWN: dict[str, Callable[[Path], None]] = {
    "own: a flipped bit": tensors(lambda raw: raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:]),
    "own: no manifest": remove("manifest.json"),
    "own: an empty manifest": write("manifest.json", "{}"),
    "own: a manifest that climbs out": write(
        "manifest.json", '{"files": {"../config.json": {"sha256": "", "bytes": 1}}}'
    ),
    "own: a missing file": remove("model.safetensors"),
    "own: a changed config": config(width=8),
    "own: an unknown family": config(family="evil"),
    "own: a family that is a path": config(family="../gpt"),
}


# what is done to a ViT's folder: its names of classes, and how it wants its images
PREPARATION = "preprocessor_config.json"
PICTURES: dict[str, Callable[[Path], None]] = {
    "labels are a list": config(id2label=["cat", "dog"]),
    "labels are text": config(id2label="cat"),
    "a label is a number": config(id2label={"0": "cat", "1": 5}),
    "a label is an object": config(id2label={"0": "cat", "1": {"dog": "dog" * 100_000}}),
    "an empty label": config(id2label={"0": "cat", "1": ""}),
    "half a character for a label": config(id2label={"0": "cat", "1": "\ud800"}),
    "a negative id": config(id2label={"-1": "cat", "0": "dog"}),
    "an id twice, spelled otherwise": config(id2label={"0": "cat", "00": "dog"}),
    "ids with a gap": config(id2label={"0": "cat", "7": "dog"}),
    "an id that is no number": config(id2label={"0": "cat", "dog": "dog"}),
    "fewer labels than classes": config(id2label={"0": "cat"}),
    "three hundred thousand labels": many_labels(300_000),
    "a million labels": many_labels(1_000_000),
    "a label of a megabyte": config(id2label={"0": "cat", "1": "x" * 2**20}),
    "a preparation that is a list": write(PREPARATION, "[]"),
    "a preparation that is no JSON": write(PREPARATION, "{"),
    "a preparation that is a link outside": link(PREPARATION, "/etc/hostname"),
    "a preparation that is a link to a good one outside": link_out(PREPARATION),
    "a preparation that is a folder": folder_of(PREPARATION),
    "a preparation of another kind": write(PREPARATION, '{"image_processor_type": "Evil"}'),
    "a preparation that wants its own code": write(PREPARATION, '{"image_processor_type": "x", "auto_map": {}}'),
    "images of a billion rows": write(PREPARATION, '{"size": {"height": 1000000000, "width": 8}}'),
    "images without rows": write(PREPARATION, '{"size": 0}'),
    "a deviation of 0": write(PREPARATION, '{"image_std": [0, 1, 1]}'),
    "a mean of infinity": write(PREPARATION, '{"image_mean": [1e999, 1, 1]}'),
    "a million means": write(PREPARATION, json.dumps({"image_mean": [0.5] * 1_000_000})),
}

OWN_PICTURES: dict[str, Callable[[Path], None]] = {
    "own: a changed label": config(labels=["cat", "dig"]),
    "own: a changed preparation": write(PREPARATION, '{"size": 8}'),
}


def main() -> None:
    """Load each folder given as argument; one line of JSON for each."""
    import jumok
    from jumok.errors import JumokError

    jumok.load(sys.argv[1])  # a good one first: what is imported now is not charged to the others
    opened: list[str] = []
    sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
    for folder in sys.argv[2:]:
        opened.clear()
        start, before = time.process_time(), _peak()
        try:
            jumok.load(folder)
            said, kind = "", "loaded"
        except JumokError as refused:
            said, kind = str(refused), "refused"
        except BaseException as wrong:
            said, kind = f"{type(wrong).__name__}: {wrong}"[:300], "crashed"
        outside = [path for path in opened if not path.startswith((folder, sys.prefix, sys.base_prefix, "/proc/self"))]
        sys.stdout.write(
            json.dumps(
                {
                    "folder": folder,
                    "kind": kind,
                    "said": said,
                    "seconds": time.process_time() - start,
                    "bytes": _peak() - before,
                    "outside": [path for path in outside if "/src/jumok/" not in path],
                }
            )
            + "\n"
        )


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
