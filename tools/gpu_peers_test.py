"""The arithmetic of gpu_peers.py's rows: what PyTorch has to do with is measured on a GPU only."""

import argparse
import contextlib
import csv
import io
import re
import tempfile
import unittest
from pathlib import Path

import gpu_peers

BENCH = Path(__file__).resolve().parent.parent / "bench"
# The columns that dsv4_bench writes, from its source.
LITERALS = re.search(r'csv_ =\s+((?:"[^"]*"\s*)+);', (BENCH / "cuda_bench.cc").read_text())[1]
HEADER = "".join(re.findall(r'"([^"]*)"', LITERALS)).replace("\\n", "\n")
CEILINGS = {"read": 4e12, "copy": 4e12, "bf16": 800e12, "fp8": 1400e12}


class GpuPeers(unittest.TestCase):
    def test_shapes(self):
        self.assertEqual(gpu_peers.parse_shape("E256xN4096xK2048"), (256, 4096, 2048))
        for text in ("256x4096x2048", "E256xN4096", "E1xK2xN3", ""):
            with self.assertRaises((argparse.ArgumentTypeError, ValueError)):
                gpu_peers.parse_shape(text)

    def test_ceilings_are_read_from_the_benchmarks_own_rows(self):
        with tempfile.TemporaryDirectory() as root:
            path = Path(root) / "bench.csv"
            path.write_text(
                HEADER
                + "2026-01-02,abc,GPU,13.0,ceiling,read,-,0,1,0,4000.0,0.00,read,1\n"
                + "2026-01-02,abc,GPU,13.0,ceiling,bf16,-,0,1,0,0.0,800.00,bf16,1\n"
                + "2026-01-02,abc,GPU,13.0,copy,1MiB,bytes,0,1,0,1.0,0.00,copy,1\n"
            )
            rows, ceilings = gpu_peers.read_csv(path)
        self.assertEqual(len(rows), 3)
        self.assertEqual(ceilings, {"read": 4e12, "bf16": 800e12})

    def refusal(self, path):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(gpu_peers.main(["--csv", str(path)]), 1)
        return errors.getvalue()

    def test_a_csv_that_dsv4_bench_did_not_write_is_refused(self):
        with tempfile.TemporaryDirectory() as root:
            missing = Path(root) / "missing.csv"
            self.assertEqual(
                self.refusal(missing),
                f"gpu_peers: cannot read {missing} (No such file or directory); write it by dsv4_bench first\n",
            )
            self.assertIn("cannot read", self.refusal(root))
            for text in ("", HEADER, "name,value\nx,1\n"):
                other = Path(root) / "other.csv"
                other.write_text(text)
                self.assertEqual(
                    self.refusal(other), f"gpu_peers: {other} has no ceilings; write it by dsv4_bench first\n")

    def test_the_binding_ceiling_gives_the_share(self):
        like = {"date": "d", "commit": "c", "gpu": "g", "driver_cuda": "13.0"}
        # 4e9 bytes are 1 ms; 4e11 operations half a millisecond in BF16, less in FP8.
        row = gpu_peers.peer_row(like, "E1xN1xK1", "BF16 x", 8, [2e-3, 3e-3, 2e-3],
                                 [4e-3, 9e-3, 1e-3], 4e9, 4e11, CEILINGS)
        self.assertEqual((row["ceiling"], row["share"], row["us"]), ("read", "0.5000", "2000.000"))
        self.assertEqual((row["spread"], row["gb_per_s"], row["sustained_us"]), ("0.5000", "2000.0", "4000.000"))
        row = gpu_peers.peer_row(like, "E1xN1xK1", "FP8 x", 8, [2e-3], [2e-3], 1e9, 1.4e12, CEILINGS)
        self.assertEqual((row["ceiling"], row["share"]), ("fp8", "0.5000"))
        # What PyTorch's rows do not have: our targets, the clocks.
        self.assertEqual(set(HEADER.strip().split(",")) - set(row),
                         {"target_us", "published_peer_us", "sm_mhz", "sustained_sm_mhz"})
        self.assertEqual(set(row) - set(HEADER.strip().split(",")), set())

    # Rows of dsv4_bench and of gpu_peers.py alike: of the ceilings measured before them, the one that binds.
    def test_committed_results_follow_from_their_ceilings(self):
        files = sorted(BENCH.glob("results/cuda-*.csv"))
        self.assertGreater(len(files), 1)
        for path in files:
            with self.subTest(path.name), open(path, newline="", encoding="utf-8") as file:
                self.assertEqual(file.readline(), HEADER)
                ceilings, shares = {}, 0
                for row in csv.DictReader(file, HEADER.strip().split(",")):
                    bytes_per_second, flops = float(row["gb_per_s"]) * 1e9, float(row["tflop_per_s"]) * 1e12
                    if row["op"] == "ceiling":
                        ceilings[row["shape"]] = max(bytes_per_second, flops)
                        continue
                    memory = "read" if row["op"] in ("expert_gate_up", "expert_down", "grouped_gemm") else "copy"
                    unit = "fp8" if row["op"] == "grouped_gemm" and row["format"].startswith("FP8") else "bf16"
                    of = {memory: bytes_per_second / ceilings[memory], unit: flops / ceilings[unit]}
                    binding = max(of, key=of.get)
                    self.assertEqual(row["ceiling"], binding, row)
                    self.assertAlmostEqual(float(row["share"]), of[binding], delta=2e-3, msg=row)
                    shares += 1
                self.assertGreater(shares, 0)


if __name__ == "__main__":
    unittest.main()
