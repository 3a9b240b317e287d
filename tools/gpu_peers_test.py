"""The arithmetic of gpu_peers.py's rows: what PyTorch has to do with is measured on a GPU only."""

import argparse
import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import gpu_peers

HEADER = "date,commit,gpu,driver_cuda,op,shape,format,m,us,spread,gb_per_s,tflop_per_s,ceiling,share\n"
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
        self.assertEqual(list(row), HEADER.strip().split(",") + ["sustained_us"])


if __name__ == "__main__":
    unittest.main()
