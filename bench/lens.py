"""Benchmark the lens.

It measures the overhead of a capture (against transformers' eager attention with output_attentions), the time of a
tile, the memory of a long text, ablating all heads in batches against one forward pass per head, how soon a cancelled
run stops, and the time that an edited run saves by reusing a clean one.

    python bench/lens.py [--rounds 9] [--long 32768] [--edits]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import torch

from jumok import Ablate, Lens, effect
from jumok.lens.effects.metrics import LogitDifference
from jumok.models.gpt import GPT, GPTConfig
from jumok.tap import listen
from measure import compare_interleaved

METRIC = LogitDifference(11, 12)


def build_gpt2_small(**fields: int) -> GPT:
    """A GPT-2 small with random parameters."""
    torch.manual_seed(0)
    return GPT(GPTConfig(**fields)).eval()


def benchmark_capture(rounds: int) -> None:
    """Time a forward pass with and without capture, a tile and a row; print the memory of the capture."""
    model, tokens = build_gpt2_small(), torch.randint(50000, (1, 1024))
    with Lens(model) as lens, torch.inference_mode():
        ratio = compare_interleaved(lambda: lens.run(tokens, last=1), lambda: model(tokens, last=1), rounds)
        print_ratio("plain forward / forward with capture, GPT-2 small, 1,024 tokens", ratio)
        capture = lens.run(tokens)
        calls = [call for attention in capture.attentions.values() for call in attention.calls]
        expected = sum(call.query.nbytes + call.key.nbytes + call.logsumexp.nbytes for call in calls)
        print(
            f"  captured: {capture.bytes / 2**20:.1f} MiB; "
            f"queries, keys and log-sum-exps are {expected / 2**20:.1f} MiB"
        )
        part = slice(512, 768)
        print(f"  tile 256 x 256: {measure_median(lambda: capture.tile(3, 1, part, part)):.2f} ms")
        print(f"  one row of 1,024: {measure_median(lambda: capture.row(3, 1, 900)):.2f} ms")
        benchmark_transformers(tokens, lens, rounds)


def benchmark_transformers(tokens: torch.Tensor, lens: Lens, rounds: int) -> None:
    """Compare a capture with transformers' output_attentions."""
    from transformers import GPT2Config, GPT2LMHeadModel

    eager = GPT2LMHeadModel(GPT2Config(attn_implementation="eager")).eval()
    ratio = compare_interleaved(
        lambda: lens.run(tokens, last=1), lambda: eager(tokens, output_attentions=True, logits_to_keep=1), rounds
    )
    print_ratio("transformers eager with output_attentions / our capture", ratio)
    attentions = eager(tokens, output_attentions=True, logits_to_keep=1).attentions
    print(f"  transformers keeps {sum(weights.nbytes for weights in attentions) / 2**20:.1f} MiB of weights")

    # two models of the same size, because an open lens changes the one that it opens
    plain, opened = (GPT2LMHeadModel(GPT2Config()).eval() for _ in range(2))
    start = time.perf_counter()
    with Lens(opened) as transformers_lens:
        transformers_lens.run(tokens)
        print(f"  the first run on transformers' GPT-2, with its comparison: {time.perf_counter() - start:.1f} s")
        ratio = compare_interleaved(
            lambda: transformers_lens.run(tokens), lambda: plain(tokens, logits_to_keep=1), rounds
        )
    print_ratio("plain forward / forward with capture, transformers' GPT-2 small, 1,024 tokens", ratio)


def benchmark_heads(rounds: int) -> None:
    """Compare the effects of all heads in restarted batches with one forward pass for each head."""
    model, tokens = build_gpt2_small(), torch.randint(50000, (1, 64))

    def measure_one_by_one() -> list[float]:
        """A complete forward pass for each head, with its output set to 0 and nothing captured."""
        effects = []
        with torch.inference_mode():
            clean_logits = model(tokens).logits
            clean = float(METRIC(clean_logits, clean_logits)[0])
            for layer in range(12):
                for head in range(12):
                    with listen(create_ablation(f"blocks.{layer}.attention.output", head)):
                        effects.append(float(METRIC(model(tokens).logits, clean_logits)[0]) - clean)
        return effects

    batched = {(row.layer, row.head): row.effect for row in effect(model, tokens, metric=METRIC).rows}
    differences = [abs(batched[index // 12, index % 12] - single) for index, single in enumerate(measure_one_by_one())]
    ratio = compare_interleaved(lambda: effect(model, tokens, metric=METRIC), measure_one_by_one, rounds)
    print_ratio("one forward for each of 144 heads / all in restarted batches, 64 tokens", ratio)
    print(f"  largest difference of an effect: {max(differences):.1e}")


class StopRunError(Exception):
    """Raised by the progress callback to stop a run."""


def benchmark_stop(length: int = 4096, rounds: int = 8) -> None:
    """Measure how long after a request a run of SmolLM2 stops, at moments spread over its duration."""
    tokens = torch.randint(49152, (1, length), generator=torch.Generator().manual_seed(0))
    delays = []
    with Lens("smollm2") as lens:
        start = time.perf_counter()
        lens.run(tokens, reusable=True)
        duration = time.perf_counter() - start
        for index in range(rounds):
            request = threading.Event()
            requested: list[float] = []

            def ask(request: threading.Event = request, requested: list[float] = requested) -> None:
                requested.append(time.perf_counter())
                request.set()

            def stop_if_requested(done: int, total: int, request: threading.Event = request) -> None:
                if request.is_set():
                    raise StopRunError

            timer = threading.Timer(duration * (index + 0.5) / rounds * 0.9, ask)
            timer.start()
            try:
                lens.run(tokens, progress=stop_if_requested)
            except StopRunError:
                delays.append(time.perf_counter() - requested[0])
            timer.join()
    print(
        f"SmolLM2, {length:,} tokens: a run takes {duration:.1f} s; it stopped {max(delays):.2f} s after a request at "
        f"most, {statistics.median(delays):.2f} s in the median of {len(delays)}",
        flush=True,
    )


def benchmark_reuse(rounds: int) -> None:
    """Compare an edited run with one that reuses the clean capture, and with a plain forward pass."""
    tokens = torch.randint(49152, (1, 64), generator=torch.Generator().manual_seed(0))
    with Lens("smollm2") as lens, torch.inference_mode():
        clean = lens.run(tokens, reusable=True)
        blocks = clean.reusable.restart.bytes
        print(f"SmolLM2, 64 tokens: blocks {blocks / 2**20:.1f} MiB, queries and keys {clean.bytes / 2**20:.1f} MiB")
        for layer in (0, 15, 29):
            edits = Ablate(layer, 0)
            ratio = compare_interleaved(
                lambda edits=edits: lens.run(tokens, edits=edits, reuse=clean),
                lambda edits=edits: lens.run(tokens, edits=edits),
                rounds,
            )
            print_ratio(
                f"edited run / the same, reusing a clean capture; SmolLM2, 64 tokens, layer {layer} of 30", ratio
            )
            ratio = compare_interleaved(
                lambda edits=edits: lens.run(tokens, edits=edits, reuse=clean),
                lambda: lens.model(tokens, last=1),
                rounds,
            )
            print_ratio("  plain forward / edited run that reuses a clean capture", ratio)


def create_ablation(ablated_site: str, head: int) -> Callable[[str, object], object]:
    """Create a listener that sets the output of one head to 0."""

    def ablate(site: str, value: object) -> object:
        if site == ablated_site and isinstance(value, torch.Tensor):
            value[:, head] = 0
        return value

    return ablate


def benchmark_long_text(length: int) -> None:
    """Capture a long text. Run it in a process of its own, so that the peak memory belongs to this capture."""
    model = GPT(GPTConfig(length=length)).eval()
    tokens = torch.randint(50000, (1, length))
    start = time.perf_counter()
    with Lens(model) as lens:
        capture = lens.run(tokens)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{length:,} tokens: {seconds:.0f} s, captured {capture.bytes / 2**30:.2f} GiB, peak {peak:.2f} GiB")
    middle = slice(length // 2, length // 2 + 256)
    early = slice(min(7000, length // 4), min(7000, length // 4) + 256)
    print(f"  tile 256 x 256: {measure_median(lambda: capture.tile(3, 1, middle, early)):.2f} ms")
    print(f"  one row: {measure_median(lambda: capture.row(3, 1, length - 1)):.2f} ms")
    tile = capture.tile(3, 1, middle, slice(0, None)).double()
    print(f"  rows sum to 1 within {float((tile.sum(-1) - 1).abs().max()):.1e}")
    start = time.perf_counter()
    capture.overview(3, 1, 512)
    print(f"  overview of 512 x 512: {time.perf_counter() - start:.1f} s")


def measure_median(work: Callable[[], object], rounds: int = 31) -> float:
    """The median time of a call in milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def print_ratio(title: str, ratio: dict[str, float]) -> None:
    print(f"{title}: {ratio['ratio']:.3f}x [{ratio['low']:.3f}, {ratio['high']:.3f}]", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved repetitions of each comparison")
    parser.add_argument("--long", type=int, help="only capture a text of this length, in this process")
    parser.add_argument("--edits", action="store_true", help="only how soon a run stops, and what reuse saves")
    options = parser.parse_args()
    if options.long:
        benchmark_long_text(options.long)
        return
    if options.edits:
        benchmark_stop()
        benchmark_reuse(options.rounds)
        return
    benchmark_capture(options.rounds)
    benchmark_heads(max(3, options.rounds // 3))
    benchmark_stop()
    benchmark_reuse(options.rounds)
    subprocess.run([sys.executable, __file__, "--long", "32768"], check=True)


if __name__ == "__main__":
    main()
