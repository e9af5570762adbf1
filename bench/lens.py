"""The lens: what capturing costs, what a tile costs, how much memory a long text takes, and all heads against one
forward each. Beside it transformers' eager attention with output_attentions.

    python bench/lens.py [--rounds 9] [--long 32768]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from jumok import Lens, effect
from jumok.lens.effects.metrics import LogitDifference
from jumok.models.gpt import GPT, GPTConfig
from jumok.tap import listen
from measure import compare_interleaved

METRIC = LogitDifference(11, 12)


def small(**fields: int) -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(**fields)).eval()


def capture(rounds: int) -> None:
    model, tokens = small(), torch.randint(50000, (1, 1024))
    with Lens(model) as lens, torch.inference_mode():
        found = compare_interleaved(lambda: lens.run(tokens, last=1), lambda: model(tokens, last=1), rounds)
        run = lens.run(tokens)
        told("plain forward / forward with capture, GPT-2 small, 1,024 tokens", found)
        keys = sum(c.query.nbytes + c.key.nbytes + c.logsumexp.nbytes for a in run.attentions.values() for c in a.calls)
        print(f"  kept: {run.bytes / 2**20:.1f} MiB; queries, keys and log-sum-exps are {keys / 2**20:.1f} MiB")
        place = slice(512, 768)
        print(f"  tile 256 x 256: {median(lambda: run.tile(3, 1, place, place)):.2f} ms")
        print(f"  one row of 1,024: {median(lambda: run.row(3, 1, 900)):.2f} ms")
        theirs(tokens, lens, rounds)


def theirs(tokens: torch.Tensor, lens: Lens, rounds: int) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    eager = GPT2LMHeadModel(GPT2Config(attn_implementation="eager")).eval()
    found = compare_interleaved(
        lambda: lens.run(tokens, last=1), lambda: eager(tokens, output_attentions=True, logits_to_keep=1), rounds
    )
    told("transformers eager with output_attentions / our capture", found)
    kept = sum(one.nbytes for one in eager(tokens, output_attentions=True, logits_to_keep=1).attentions)
    print(f"  transformers keeps {kept / 2**20:.1f} MiB of weights")


def heads(rounds: int) -> None:
    model, tokens = small(), torch.randint(50000, (1, 64))

    def one_by_one() -> list[float]:
        """An ordinary forward each, with that head's output zeroed and nothing else kept."""
        values = []
        with torch.inference_mode():
            clean = float(METRIC(logits := model(tokens).logits, logits)[0])
            for layer in range(12):
                for head in range(12):
                    with listen(silenced(f"blocks.{layer}.attention.output", head)):
                        values.append(float(METRIC(model(tokens).logits, logits)[0]) - clean)
        return values

    batched = effect(model, tokens, metric=METRIC)
    found = {(one.layer, one.head): one.effect for one in batched.rows}
    apart = max(abs(found[place // 12, place % 12] - value) for place, value in enumerate(one_by_one()))
    result = compare_interleaved(lambda: effect(model, tokens, metric=METRIC), one_by_one, rounds)
    told("one forward for each of 144 heads / all in restarted batches, 64 tokens", result)
    print(f"  largest difference of an effect: {apart:.1e}")


def silenced(where: str, head: int) -> Callable[[str, object], object]:
    def listener(site: str, value: object) -> object:
        if site == where and isinstance(value, torch.Tensor):
            value[:, head] = 0
        return value

    return listener


def long(length: int) -> None:
    """In a process of its own, whose peak is then this run's."""
    model = GPT(GPTConfig(length=length)).eval()
    tokens = torch.randint(50000, (1, length))
    began = time.perf_counter()
    with Lens(model) as lens:
        run = lens.run(tokens)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{length:,} tokens: {time.perf_counter() - began:.0f} s, kept {run.bytes / 2**30:.2f} GiB, peak {peak:.2f} GiB"
    )
    middle = slice(length // 2, length // 2 + 256)
    print(f"  tile 256 x 256: {median(lambda: run.tile(3, 1, middle, slice(7000, 7256))):.2f} ms")
    print(f"  one row: {median(lambda: run.row(3, 1, length - 1)):.2f} ms")
    tile = run.tile(3, 1, middle, slice(0, None)).double()
    print(f"  rows sum to 1 within {float((tile.sum(-1) - 1).abs().max()):.1e}")
    began = time.perf_counter()
    run.overview(3, 1, 512)
    print(f"  overview of 512 x 512: {time.perf_counter() - began:.1f} s")


def median(work: Callable[[], object], rounds: int = 31) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def told(what: str, found: dict[str, float]) -> None:
    print(f"{what}: {found['ratio']:.3f}x [{found['low']:.3f}, {found['high']:.3f}]", flush=True)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--rounds", type=int, default=9)
    reader.add_argument("--long", type=int, help="only a text of this length, in this process")
    given = reader.parse_args()
    if given.long:
        long(given.long)
        return
    capture(given.rounds)
    heads(max(3, given.rounds // 3))
    subprocess.run([sys.executable, __file__, "--long", "32768"], check=True)


if __name__ == "__main__":
    main()
