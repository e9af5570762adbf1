"""Make hostile model folders: each function damages a good folder in one way. As a program, load the given folders and
print for each the error message, the time, the growth of memory and the files that were opened."""

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


def write_good_folder(folder: Path) -> None:
    """Write a folder that loads: a GPT-2 with a few hundred parameters, and a tokenizer."""
    import torch

    import jumok
    from jumok.data.tokenizers.tokenizer import Tokenizer
    from jumok.models import GPT, GPTConfig

    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=11, length=8, width=4, layers=1, heads=2, hidden=8))
    jumok.save(model, folder, format="huggingface", tokenizer=Tokenizer.for_characters("abcdefghij"))


def write_own_folder(folder: Path) -> None:
    """Write the same model in our own format."""
    import torch

    import jumok
    from jumok.models import GPT, GPTConfig

    torch.manual_seed(0)
    jumok.save(GPT(GPTConfig(vocabulary=11, length=8, width=4, layers=1, heads=2, hidden=8)), folder)


def write_image_folder(folder: Path) -> None:
    """Write a ViT with class labels and an image preparation, in Hugging Face's format."""
    import torch

    import jumok
    from jumok.data.images.preparation import Preparation
    from jumok.models.vit import ViT, ViTConfig

    torch.manual_seed(0)
    model = ViT(ViTConfig(image=(8, 8), patch=(4, 4), width=4, layers=1, heads=2, hidden=8, classes=2))
    jumok.save(model, folder, "huggingface", preparation=Preparation((8, 8)), labels=["cat", "dog"])


def write_own_image_folder(folder: Path) -> None:
    """Write the same ViT in our own format."""
    import jumok

    write_image_folder(folder.parent / "theirs")
    jumok.save(jumok.load(folder.parent / "theirs"), folder)


def change_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        fields = json.loads((folder / "config.json").read_text())
        fields.update(changes)
        present = {name: field for name, field in fields.items() if field is not ...}
        (folder / "config.json").write_text(json.dumps(present))

    return change


def write_many_labels(count: int) -> Callable[[Path], None]:
    return lambda folder: change_config(id2label={str(index): "x" for index in range(count)})(folder)


def write_file(name: str, content: bytes | str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return change


def remove_file(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def replace_by_folder(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def link_to(name: str, target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


def move_outside_and_link(name: str) -> Callable[[Path], None]:
    """Move a valid file outside and link to it: following the link would succeed."""

    def change(folder: Path) -> None:
        outside = folder.parent / f"outside-{folder.name}-{name}"
        os.rename(folder / name, outside)
        (folder / name).symlink_to(outside)

    return change


def change_header(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Change the header of model.safetensors but not its tensors."""

    def apply(folder: Path) -> None:
        raw = (folder / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        fields = json.loads(raw[8 : 8 + length])
        change(fields)
        text = json.dumps(fields).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])

    return apply


def change_tensors(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return apply


def write_index(weight_map: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        os.rename(folder / "model.safetensors", folder / "shard.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return apply


NAME = "transformer.wte.weight"


def set_entry(name: str, field: str, content: Any) -> Callable[[dict[str, Any]], None]:
    return lambda header: header[name].__setitem__(field, content)


FOLDERS: dict[str, Callable[[Path], None]] = {
    # config.json
    "no config": remove_file("config.json"),
    "config is a list": write_file("config.json", "[1, 2]"),
    "config is no JSON": write_file("config.json", "{'a': 1"),
    "config is bytes": write_file("config.json", b"\xff\xfe\x00\x01"),
    "config is nested a hundred thousand deep": write_file("config.json", "[" * 100_000),
    "config is 20 MB": write_file("config.json", '{"a": "' + "x" * 20_000_000 + '"}'),
    "config is a link outside": link_to("config.json", "/etc/hostname"),
    "config is a link to a good one outside": move_outside_and_link("config.json"),
    "tensors are a link to good ones outside": move_outside_and_link("model.safetensors"),
    "a tokenizer is a link to a good one outside": move_outside_and_link("tokenizer.json"),
    "config is a folder": replace_by_folder("config.json"),
    "no model type": change_config(model_type=...),
    "unknown model type": change_config(model_type="pwned"),
    "model type is a path": change_config(model_type="../../../gpt2"),
    "model type is a list": change_config(model_type=["gpt2"]),
    "wants its own code": change_config(model_type="custom", auto_map={"AutoModel": "evil.py--Model"}),
    "a negative width": change_config(n_embd=-4),
    "width is text": change_config(n_embd="4"),
    "width is not a number": change_config(n_embd=float("nan")),
    "a terabyte of vocabulary": change_config(vocab_size=10**12),
    "a billion layers": change_config(n_layer=10**9),
    "a hundred thousand layers": change_config(n_layer=100_000),
    "a width of 2**30": change_config(n_embd=2**30, n_head=1),
    "heads that do not divide the width": change_config(n_head=3),
    "no heads": change_config(n_head=0),
    "unknown activation": change_config(activation_function="eval"),
    "arithmetic that is not ours": change_config(scale_attn_by_inverse_layer_idx=True),
    "vocabulary of another size than the file's": change_config(vocab_size=12),
    # model.safetensors
    "no tensors": remove_file("model.safetensors"),
    "only a pickle": lambda folder: os.rename(folder / "model.safetensors", folder / "pytorch_model.bin"),
    "an empty file": write_file("model.safetensors", b""),
    "seven bytes": write_file("model.safetensors", b"1234567"),
    "a header of 2**63 bytes": change_tensors(lambda raw: struct.pack("<Q", 2**63) + raw[8:]),
    "a header longer than the file": change_tensors(lambda raw: struct.pack("<Q", len(raw)) + raw[8:]),
    "a header that is no JSON": change_tensors(lambda raw: raw[:8] + b"x" * 20 + raw[28:]),
    "a header nested deep": write_file("model.safetensors", struct.pack("<Q", 200_000) + b"[" * 200_000),
    "cut off": change_tensors(lambda raw: raw[:-5]),
    "bytes too many": change_tensors(lambda raw: raw + b"12345"),
    "a pickle under that name": write_file("model.safetensors", b"\x80\x04cos\nsystem\n(S'true'\ntR."),
    "a shape of terabytes": change_header(set_entry(NAME, "shape", [2**40, 4])),
    "a negative shape": change_header(set_entry(NAME, "shape", [-11, -4])),
    "offsets that overlap": change_header(set_entry(NAME, "data_offsets", [0, 176])),
    "offsets outside": change_header(set_entry(NAME, "data_offsets", [2**50, 2**50 + 176])),
    "an unknown number type": change_header(set_entry(NAME, "dtype", "F128")),
    "a tensor described by text": change_header(lambda header: header.__setitem__(NAME, "x")),
    "a tensor missing": change_header(lambda header: header.__setitem__("other", header.pop(NAME))),
    "a tensor of another shape": change_header(set_entry(NAME, "shape", [4, 11])),
    "integers for parameters": change_header(set_entry(NAME, "dtype", "I32")),
    "booleans for parameters": change_header(
        lambda header: header[NAME].update({"dtype": "BOOL", "shape": [11, 16]}),
    ),
    "a shape of booleans": change_header(set_entry(NAME, "shape", [True, 44])),
    "a header of ten million lists": write_file(
        "model.safetensors", struct.pack("<Q", 30_000_007) + b'{"x":[' + b"[]," * 10_000_000 + b"]"
    ),
    "tensors are a link outside": link_to("model.safetensors", "/etc/hostname"),
    "tensors are a device": link_to("model.safetensors", "/dev/zero"),
    # shards
    "a shard climbs out": write_index({NAME: "../../../../etc/passwd.safetensors"}),
    "a shard with an absolute path": write_index({NAME: "/etc/passwd.safetensors"}),
    "a shard that is not there": write_index({NAME: "no.safetensors"}),
    "a shard that is a pickle": write_index({NAME: "shard.bin"}),
    "a shard that does not hold it": write_index({"other": "shard.safetensors"}),
    "a weight map of numbers": write_index({NAME: 5}),
    "a weight map that is a list": write_index([NAME]),
    "a weight map of a hundred thousand files": write_index({f"n{i}": f"f{i}.safetensors" for i in range(100_000)}),
    # tokenizer
    "a tokenizer that is no JSON": write_file("tokenizer.json", "{"),
    "a tokenizer of another kind": write_file("tokenizer.json", '{"version": "1.0", "model": {"type": "Evil"}}'),
    "a tokenizer that is a link outside": link_to("tokenizer.json", "/etc/hostname"),
    "a tokenizer with a far larger vocabulary": write_file(
        "tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 2147483647}, "merges": []}}'
    ),
    "a tokenizer that multiplies texts": write_file(
        "tokenizer.json",
        '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "Sequence", "normalizers":['
        + ", ".join(['{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}'] * 50)
        + "]}}",
    ),
    "a tokenizer of bytes": write_file("tokenizer.json", bytes(range(256)) * 100),
}

# changes to a folder of our own format
OWN: dict[str, Callable[[Path], None]] = {
    "own: a flipped bit": change_tensors(lambda raw: raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:]),
    "own: no manifest": remove_file("manifest.json"),
    "own: an empty manifest": write_file("manifest.json", "{}"),
    "own: a manifest that climbs out": write_file(
        "manifest.json", '{"files": {"../config.json": {"sha256": "", "bytes": 1}}}'
    ),
    "own: a missing file": remove_file("model.safetensors"),
    "own: a changed config": change_config(width=8),
    "own: an unknown family": change_config(family="evil"),
    "own: a family that is a path": change_config(family="../gpt"),
}


# changes to the class labels and the image preparation of a ViT
PREPARATION = "preprocessor_config.json"
IMAGES: dict[str, Callable[[Path], None]] = {
    "labels are a list": change_config(id2label=["cat", "dog"]),
    "labels are text": change_config(id2label="cat"),
    "a label is a number": change_config(id2label={"0": "cat", "1": 5}),
    "a label is an object": change_config(id2label={"0": "cat", "1": {"dog": "dog" * 100_000}}),
    "an empty label": change_config(id2label={"0": "cat", "1": ""}),
    "half a character for a label": change_config(id2label={"0": "cat", "1": "\ud800"}),
    "a negative id": change_config(id2label={"-1": "cat", "0": "dog"}),
    "an id twice, spelled otherwise": change_config(id2label={"0": "cat", "00": "dog"}),
    "ids with a gap": change_config(id2label={"0": "cat", "7": "dog"}),
    "an id that is no number": change_config(id2label={"0": "cat", "dog": "dog"}),
    "fewer labels than classes": change_config(id2label={"0": "cat"}),
    "three hundred thousand labels": write_many_labels(300_000),
    "a million labels": write_many_labels(1_000_000),
    "a label of a megabyte": change_config(id2label={"0": "cat", "1": "x" * 2**20}),
    "a preparation that is a list": write_file(PREPARATION, "[]"),
    "a preparation that is no JSON": write_file(PREPARATION, "{"),
    "a preparation that is a link outside": link_to(PREPARATION, "/etc/hostname"),
    "a preparation that is a link to a good one outside": move_outside_and_link(PREPARATION),
    "a preparation that is a folder": replace_by_folder(PREPARATION),
    "a preparation of another kind": write_file(PREPARATION, '{"image_processor_type": "Evil"}'),
    "a preparation that wants its own code": write_file(PREPARATION, '{"image_processor_type": "x", "auto_map": {}}'),
    "images of a billion rows": write_file(PREPARATION, '{"size": {"height": 1000000000, "width": 8}}'),
    "images of a million by a million": write_file(PREPARATION, '{"size": 1000000}'),
    "images far larger than the model's": write_file(PREPARATION, '{"size": 4096}'),
    "a crop far larger than the model's": write_file(
        PREPARATION, '{"size": 8, "do_center_crop": true, "crop_size": {"height": 8, "width": 4000}}'
    ),
    "images of half a row": write_file(PREPARATION, '{"size": {"height": 0.5, "width": 8}}'),
    "images of a size that is text": write_file(PREPARATION, '{"size": "8"}'),
    "two means for three channels": write_file(PREPARATION, '{"image_mean": [0.5, 0.5]}'),
    "four deviations for three channels": write_file(PREPARATION, '{"image_std": [1, 1, 1, 1]}'),
    "a mean that is not a number": write_file(PREPARATION, '{"image_mean": [NaN, 0, 0]}'),
    "a deviation that is text": write_file(PREPARATION, '{"image_std": ["1", 1, 1]}'),
    "a scale that is not a number": write_file(PREPARATION, '{"rescale_factor": NaN}'),
    "an unknown resampling": write_file(PREPARATION, '{"resample": 99}'),
    "images without rows": write_file(PREPARATION, '{"size": 0}'),
    "a deviation of 0": write_file(PREPARATION, '{"image_std": [0, 1, 1]}'),
    "a mean of infinity": write_file(PREPARATION, '{"image_mean": [1e999, 1, 1]}'),
    "a million means": write_file(PREPARATION, json.dumps({"image_mean": [0.5] * 1_000_000})),
}

OWN_IMAGES: dict[str, Callable[[Path], None]] = {
    "own: a changed label": change_config(labels=["cat", "dig"]),
    "own: a changed preparation": write_file(PREPARATION, '{"size": 8}'),
}


def main() -> None:
    """Load each folder given as an argument and print one line of JSON for each."""
    import jumok
    from jumok.errors import JumokError

    jumok.load(sys.argv[1])  # a good folder first, so that imports are not measured
    opened: list[str] = []
    sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
    for folder in sys.argv[2:]:
        opened.clear()
        start, before = time.process_time(), measure_peak_memory()
        try:
            jumok.load(folder)
            message, kind = "", "loaded"
        except JumokError as error:
            message, kind = str(error), "refused"
        except BaseException as error:
            message, kind = f"{type(error).__name__}: {error}"[:300], "crashed"
        outside = [path for path in opened if not path.startswith((folder, sys.prefix, sys.base_prefix, "/proc/self"))]
        sys.stdout.write(
            json.dumps(
                {
                    "folder": folder,
                    "kind": kind,
                    "message": message,
                    "seconds": time.process_time() - start,
                    "bytes": measure_peak_memory() - before,
                    "outside": [path for path in outside if "/src/jumok/" not in path],
                }
            )
            + "\n"
        )


def measure_peak_memory() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
