#!/usr/bin/env python3
"""Times PyTorch's grouped GEMMs at the shapes of V4's experts, in rows of dsv4_bench's CSV form.

    tools/gpu_peers.py --csv BENCH.csv [--tokens 1,32,1024] [--shape E256xN4096xK4096]...

All of Flash's and Pro's by default. Appends to the CSV that `dsv4_bench --device cuda --csv` wrote in the same session on the same GPU, whose
ceilings the shares are of. As there: graph replays of at least 2 ms, the median of nine with pauses
between them and of a quarter of a second without, experts drawn anew for each of several input sets,
results compared with FP64 sums on sampled outputs first.
"""

import argparse
import csv
import itertools
import math
import statistics
import sys
import time

EXPERTS_PER_TOKEN = 6
SHAPES = ("E256xN4096xK4096", "E256xN4096xK2048", "E384xN6144xK7168", "E384xN7168xK3072")
SETS = 4  # of routed tokens; the experts of one are far larger than the L2
REPLAYS = 9
# As src/cuda/bench/timer.cc.
REPLAY_SECONDS = 2e-3
PAUSE_SECONDS, PAUSE_REPLAYS = 20e-3, 4
SUSTAINED_SECONDS = 0.25


def parse_shape(text):
    """E256xN4096xK4096 -> (256, 4096, 4096)."""
    parts = text.split("x")
    if len(parts) != 3 or [p[:1] for p in parts] != ["E", "N", "K"]:
        raise argparse.ArgumentTypeError(f"{text}: a shape is such as E256xN4096xK4096")
    return tuple(int(p[1:]) for p in parts)


def read_csv(path):
    """Returns (its rows, {ceiling name: per second})."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ceilings = {}
    for row in rows:
        if row.get("op") == "ceiling":
            memory = row["shape"] in ("read", "copy")
            ceilings[row["shape"]] = (
                float(row["gb_per_s"]) * 1e9 if memory else float(row["tflop_per_s"]) * 1e12
            )
    return rows, ceilings


def peer_row(like, shape_text, label, tokens, seconds, sustained, useful_bytes, flops, ceilings):
    """A row of the table; `like` gives date, commit, GPU and its driver. Seconds of the replays with pauses
    and of those without."""
    unit = "fp8" if label.startswith("FP8") else "bf16"
    floors = {"read": useful_bytes / ceilings["read"], unit: flops / ceilings[unit]}
    binding = max(floors, key=floors.get)
    median = statistics.median(seconds)
    return {
        **{name: like[name] for name in ("date", "commit", "gpu", "driver_cuda")},
        "op": "grouped_gemm",
        "shape": shape_text,
        "format": label,
        "m": tokens,
        "us": f"{median * 1e6:.3f}",
        "spread": f"{(max(seconds) - min(seconds)) / median:.4f}",
        "gb_per_s": f"{useful_bytes / median * 1e-9:.1f}",
        "tflop_per_s": f"{flops / median * 1e-12:.2f}",
        "ceiling": binding,
        "share": f"{floors[binding] / median:.4f}",
        "sustained_us": f"{statistics.median(sustained) * 1e6:.3f}",
    }


def route(torch, tokens, num_experts, seed):
    """Rows of each expert, [num_experts], when every token takes distinct experts at random."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.zeros(num_experts, dtype=torch.int64)
    for _ in range(tokens):
        counts[torch.randperm(num_experts, generator=generator)[:EXPERTS_PER_TOKEN]] += 1
    return counts


def graph_seconds(torch, call):
    """Seconds a call: of replays with pauses, and of replays without."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(SETS):
            call(i)
    torch.cuda.synchronize()

    def record(calls):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                call(i % SETS)
        return graph

    def replay(graph):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    probe = record(SETS)
    probed = [replay(probe) for _ in range(3)][-1]
    calls = SETS * max(1, min(1000, math.ceil(REPLAY_SECONDS / probed)))
    graph = record(calls)
    warm = [replay(graph) for _ in range(2)][-1]
    seconds = []
    for _ in range(REPLAYS):
        time.sleep(max(PAUSE_SECONDS, PAUSE_REPLAYS * warm))
        seconds.append(replay(graph) / calls)
    sustained, start = [], time.monotonic()
    while time.monotonic() - start < SUSTAINED_SECONDS or not sustained:
        each = replay(graph) / calls
        if time.monotonic() - start >= SUSTAINED_SECONDS / 2:  # the power limit has acted
            sustained.append(each)
    return seconds, sustained


def check(torch, got, x, weights, scales, ends):
    """Raises unless sampled outputs are BF16 roundings of FP64 sums (FP8: of fewer-bit sums)."""
    for row in range(0, got.shape[0], max(1, got.shape[0] // 16)):
        expert = int(torch.searchsorted(ends, torch.tensor(row, device=ends.device), right=True))
        cols = torch.arange(0, weights.shape[1], 97, device="cuda")
        want = weights[expert, cols].double() @ x[row].double()
        if scales is not None:
            want = want * scales[0][row].double() * scales[1][expert, cols].double()
        error = (got[row, cols].double() - want).norm() / want.norm()
        if not error < 0.01:
            raise RuntimeError(f"row {row} differs by {error:.4f}")


def make_weights(torch, kind, shape):
    """Random weights [experts, N, K] and, for FP8, a scale for each of their rows."""
    num_experts, n, k = shape
    dtype = torch.float8_e4m3fn if kind == "FP8" else torch.bfloat16
    # Made an expert at a time: noise for all of them would not fit beside them.
    weights = torch.empty(num_experts, n, k, device="cuda", dtype=dtype)
    for expert in range(num_experts):
        weights[expert] = torch.randn(n, k, device="cuda", dtype=torch.bfloat16).to(dtype)
    return weights, torch.rand(num_experts, n, device="cuda") + 0.5 if kind == "FP8" else None


def measure(torch, weights, weight_scales, tokens):
    """Returns (seconds of the replays, of those without pauses, useful bytes, flops)."""
    num_experts, n, k = weights.shape
    rows = tokens * EXPERTS_PER_TOKEN
    counts = [route(torch, tokens, num_experts, seed) for seed in range(SETS)]
    ends = [c.cumsum(0).to(torch.int32).cuda() for c in counts]
    x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16).to(weights.dtype)
    scales = None
    if weight_scales is not None:
        scales = (torch.rand(rows, device="cuda") + 0.5, weight_scales)

    def call(i):
        if scales is None:
            return torch._grouped_mm(x, weights.transpose(1, 2), offs=ends[i])
        return torch._scaled_grouped_mm(
            x, weights.transpose(1, 2), *scales, offs=ends[i],
            out_dtype=torch.bfloat16, use_fast_accum=True)

    check(torch, call(0), x, weights, scales, ends[0])
    touched = statistics.mean(int((c > 0).sum()) for c in counts)
    element = weights.element_size()
    useful_bytes = touched * n * k * element + rows * k * element + rows * n * 2
    return *graph_seconds(torch, call), useful_bytes, 2.0 * rows * n * k


def main(argv):
    parser = argparse.ArgumentParser(description="Times PyTorch's grouped GEMMs.")
    parser.add_argument("--csv", required=True, help="written by dsv4_bench; rows are appended")
    parser.add_argument("--tokens", default="1,8,32,128,1024,8192", help="tokens of a step")
    parser.add_argument("--shape", type=parse_shape, action="append", metavar="ExNxK",
                        help="experts, rows and columns of a weight matrix, such as E256xN4096xK4096;"
                        " may be given several times")
    args = parser.parse_args(argv)
    try:
        rows, ceilings = read_csv(args.csv)
    except OSError as error:
        print(f"gpu_peers: cannot read {args.csv} ({error.strerror}); write it by dsv4_bench first", file=sys.stderr)
        return 1
    if not {"read", "bf16", "fp8"} <= set(ceilings):
        print(f"gpu_peers: {args.csv} has no ceilings; write it by dsv4_bench first", file=sys.stderr)
        return 1
    try:
        import torch
    except ImportError:
        print("gpu_peers: PyTorch is not installed here", file=sys.stderr)
        return 1
    shapes = args.shape or [parse_shape(text) for text in SHAPES]
    with open(args.csv, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        for shape, kind in itertools.product(shapes, ("BF16", "FP8")):
            shape_text = "E{}xN{}xK{}".format(*shape)
            weights = make_weights(torch, kind, shape)
            for tokens in (int(t) for t in args.tokens.split(",")):
                measured = measure(torch, *weights, tokens)
                label = f"{kind} PyTorch {torch.__version__}"
                row = peer_row(rows[0], shape_text, label, tokens, *measured, ceilings)
                writer.writerow(row)
                file.flush()
                print("{op:<16} {shape:<20} {format:<26} {m:>6} {us:>10} us {ceiling:>5} {share}".format(**row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
