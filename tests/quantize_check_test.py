#!/usr/bin/env python3
"""What `dsv4 quantize` writes, judged by tools/check_nvfp4.py, which shares no code with it, and by
the program itself: the cast of a model computes what its source computes.

    quantize_check_test.py PROGRAM SOURCE_DIR [unittest arguments]

The checker's packages are fetched from PyPI into the folder that DSV4_CHECKER_PACKAGES names; ends
with 77, skipped, where that is not possible.
"""

import json
import os
import sys

from cli_testing import FAILED, NANO, SOURCE, CliTest, load_tests, main, run

TOOLS = SOURCE / "tools"

sys.path.insert(1, str(TOOLS))
import fetch_python_packages  # noqa: E402

PACKAGES = os.environ["DSV4_CHECKER_PACKAGES"]
fetch_python_packages.import_from(TOOLS / "nvfp4_checker" / "requirements.txt", PACKAGES)
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

import check_nvfp4  # noqa: E402
from check_nvfp4_testing import (  # noqa: E402
    EXPERT,
    GOLDEN,
    Checkpoint,
    cast_to_nvfp4,
    experts_of,
    to_transformers,
)


class QuantizeTest(CliTest):
    def quantize(self, source, *options):
        """Writes a model into a folder of its own."""
        out = self.folder / f"out{len(list(self.folder.iterdir()))}"
        self.expect_done(run("quantize", source, out, *options))
        return out

    def check(self, out, source, layout="modelopt"):
        """Accepted, the report included; returns the tally of everything."""
        findings, _, comparison = check_nvfp4.check(out, source, layout)
        self.assertEqual(findings.refusals, [])
        self.assertTrue((out / "quantization_report.json").exists())
        return comparison.totals()["total"]

    def write_source(self, model):
        return model.write(self.folder / f"source{len(list(self.folder.iterdir()))}")

    def perplexity(self, model, *options):
        text = (NANO / "held_out.txt").read_bytes()[:4000]
        result = run(
            "perplexity",
            model,
            "-",
            "--activations",
            "a16",
            "--window",
            "128",
            "--json",
            *options,
            stdin=text,
        )
        return json.loads(self.expect_done(result))


class CastIsLossless(QuantizeTest):
    def test_flash_official_in_both_layouts(self):
        source = GOLDEN / "flash-official"
        for layout in ("modelopt", "compressed-tensors"):
            out = self.quantize(source, "--layout", layout)
            total = self.check(out, source, layout)
            self.assertTrue(total.lossless)
            self.assertEqual(total.cast_blocks, total.quant_blocks)
            golden = source / "golden-a16.safetensors"
            self.expect_done(run("verify", out, "--golden", golden, "--activations", "a16"))

    def test_nano_predicts_the_same_to_the_last_digit(self):
        out = self.quantize(NANO)
        self.assertTrue(self.check(out, NANO).lossless)
        self.assertEqual(self.perplexity(out), self.perplexity(NANO))

    def test_shards_their_index_and_an_expert_in_several(self):
        # Tensors are dealt out to the shards in turn, so weights and scales lie apart.
        source = Checkpoint(GOLDEN / "flash-official").write(self.folder / "sharded", num_shards=3)
        for layout in ("modelopt", "compressed-tensors"):
            out = self.quantize(source, "--layout", layout)
            self.assertTrue(self.check(out, source, layout).lossless)
            self.assertTrue((out / "model-00003-of-00003.safetensors").exists())

    def test_what_was_encoded_is_copied(self):
        source = self.quantize(GOLDEN / "flash-bf16", "--modules", "all", "--four-over-six")
        again = self.quantize(source)
        self.assertTrue(self.check(again, source).lossless)
        other = self.quantize(source, "--layout", "compressed-tensors")
        self.assertLess(self.check(other, source, "compressed-tensors").relative_error, 2**-23)

    def test_options_of_encoding_do_not_touch_a_cast(self):
        source = GOLDEN / "flash-official"
        out = self.quantize(source, "--four-over-six", "--rounding", "half_step")
        self.assertTrue(self.check(out, source).lossless)

    def test_nvfp4_is_copied_and_changes_its_layout(self):
        source = GOLDEN / "flash-nvfp4"
        out = self.quantize(source, "--layout", "compressed-tensors")
        # Some of its global scales have no reciprocal in FP32, which that layout stores: the report
        # must count what they lose, and agrees with this check.
        total = self.check(out, source, "compressed-tensors")
        self.assertFalse(total.lossless)
        self.assertLess(total.relative_error, 2**-23)
        back = self.quantize(out)
        self.assertTrue(self.check(back, out).lossless)


class CalibratedInputScales(QuantizeTest):
    def test_every_expert_has_one_also_those_that_were_not_routed(self):
        text = self.write("text", (NANO / "held_out.txt").read_bytes()[:300])
        scales = []
        for layout in ("modelopt", "compressed-tensors"):
            out = self.quantize(NANO, "--layout", layout, "--calibrate", text)
            self.assertTrue(self.check(out, NANO, layout).lossless)
            matrices = check_nvfp4.read(out, check_nvfp4.Findings()).matrices.values()
            scales.append([m.input_scale for m in matrices if m.form == "NVFP4"])
            self.assertNotIn(None, scales[-1])
        # Reciprocals round: a scale may differ in its last bit.
        np.testing.assert_allclose(*(sorted(s) for s in scales), rtol=2**-23)


class EncodedFromValues(QuantizeTest):
    """The checker makes every byte again from the source and measures the report's figures."""

    def test_flash_bf16(self):
        source = GOLDEN / "flash-bf16"
        errors = {}
        for options in (
            (),
            ("--rounding", "half_step"),
            ("--four-over-six",),
            ("--four-over-six", "--rounding", "half_step"),
        ):
            total = self.check(self.quantize(source, *options), source)
            self.assertFalse(total.lossless)
            errors[options] = total.relative_error
        self.assertLess(errors[("--four-over-six",)], errors[()])
        self.assertLess(errors[()], errors[("--rounding", "half_step")])

    def test_all_modules_of_nano(self):
        for layout in ("modelopt", "compressed-tensors"):
            out = self.quantize(NANO, "--modules", "all", "--layout", layout)
            total = self.check(out, NANO, layout)
            self.assertFalse(total.lossless)
            self.assertGreater(total.cast_blocks, 0)  # the experts

    def test_the_checker_sees_a_changed_byte(self):
        source = GOLDEN / "flash-bf16"
        out = self.quantize(source)
        path = out / "model.safetensors"
        data = bytearray(path.read_bytes())
        size = int.from_bytes(data[:8], "little")
        name = "layers.1.ffn.experts.0.w1.weight"
        data[8 + size + json.loads(data[8 : 8 + size])[name]["data_offsets"][0]] ^= 1
        path.write_bytes(data)
        findings, _, _ = check_nvfp4.check(out, source)
        self.assertIn((name[: -len(".weight")], "encoding"), [f[:2] for f in findings.refusals])


class HardSources(QuantizeTest):
    """Rows of docs/checkpoints.md and of reports on other quantisers, one source each."""

    def setUp(self):
        super().setUp()
        self.official = Checkpoint(GOLDEN / "flash-official")
        self.bf16 = Checkpoint(GOLDEN / "flash-bf16")

    def set_exponent(self, name, row, block, change):
        """Moves the E8M0 scale of one block against the largest of the expert's w1 and w3."""
        scales = [self.official.array(f"{name[:-1]}{i}.scale") for i in (1, 3)]
        largest = max(int(scale.max()) for scale in scales)
        cols = scales[0].shape[1]
        self.official.set_byte(f"{name}.scale", row * cols + block, largest + change)

    def set_codes(self, name, row, block, byte):
        cols = self.official.tensors[f"{name}.weight"][1][1]
        for i in range(16):
            self.official.set_byte(f"{name}.weight", row * cols + block * 16 + i, byte)

    def test_exponents_17_apart_are_cast_and_18_apart_are_not(self):
        for change, reencoded in ((-17, 0), (-18, 2)):
            self.set_exponent(EXPERT, 3, 1, change)
            source = self.write_source(self.official)
            total = self.check(self.quantize(source), source)
            self.assertEqual(total.reencoded_blocks, reencoded)
            self.assertEqual(total.lossless, reencoded == 0)

    def test_blocks_without_a_nonzero_code_lose_nothing(self):
        for row, change, code in ((3, 40, 0x00), (4, -60, 0x00), (5, -60, 0x88), (6, 40, 0x80)):
            self.set_codes(EXPERT, row, 1, code)  # 8 is -0
            self.set_exponent(EXPERT, row, 1, change)
        source = self.write_source(self.official)
        total = self.check(self.quantize(source), source)
        self.assertTrue(total.lossless)
        self.assertEqual((total.reencoded_blocks, total.zeroed_blocks), (0, 0))

    def test_nvfp4_experts_whose_gate_and_up_have_scales_of_their_own(self):
        model = Checkpoint(GOLDEN / "flash-nvfp4")
        name = EXPERT + ".weight_scale_2"
        model.scalar(name, model.array(name, np.float32) * np.float32(0.37))
        source = self.write_source(model)
        total = self.check(self.quantize(source), source)
        self.assertGreater(total.reencoded_blocks, 0)
        self.assertFalse(total.lossless)

    def test_nvfp4_of_which_some_matrices_are_chosen(self):
        # The report counts those only.
        source = GOLDEN / "flash-nvfp4"
        for modules, matrices in (("layers.1.ffn.experts.2.*", 3), ("*.experts.*.w2", 24)):
            out = self.quantize(source, "--modules", modules)
            self.assertEqual(self.check(out, source).values, matrices * 128 * 128)

    def test_gate_and_up_in_different_formats(self):
        up = f"{EXPERT[:-1]}3"
        del self.official.tensors[up + ".scale"]
        self.official.put(up + ".weight", "BF16", np.full((128, 128), 0x3C23, np.uint16))
        source = self.write_source(self.official)
        total = self.check(self.quantize(source), source)
        self.assertEqual(total.reencoded_blocks, 128 * 128 // 16)  # of the gate

    def test_a_draft_block_in_nvfp4(self):
        for name in ("flash-official", "flash-nvfp4"):
            model = Checkpoint(GOLDEN / name)
            cast_to_nvfp4(model, experts_of(model, "mtp."))
            if name == "flash-nvfp4":  # whose trunk has input scales
                for scale in [n for n in model.names(".input_scale") if n.startswith("mtp.")]:
                    del model.tensors[scale]
            source = self.write_source(model)
            for layout in ("modelopt", "compressed-tensors"):
                self.check(self.quantize(source, "--layout", layout), source, layout)

    def test_nvfp4_with_negative_block_scales(self):
        model = Checkpoint(GOLDEN / "flash-nvfp4")
        scales = model.array(EXPERT + ".weight_scale")
        for block in (0, 5, scales.size - 1):
            model.set_byte(EXPERT + ".weight_scale", block, scales.flat[block] | 0x80)
        source = self.write_source(model)
        total = self.check(self.quantize(source), source)
        self.assertTrue(total.lossless)
        self.assertEqual(total.cast_blocks, total.quant_blocks)

    def test_fp8_experts_with_numbers_for_scales(self):
        for suffix in ("w1", "w2", "w3"):
            for expert in range(self.bf16.config["n_routed_experts"]):
                name = f"layers.1.ffn.experts.{expert}.{suffix}"
                shape = self.bf16.tensors[name + ".weight"][1]
                codes = np.arange(shape[0] * shape[1]).reshape(shape) * 37 % 127
                self.bf16.put(name + ".weight", "F8_E4M3", codes.astype(np.uint8))
                self.bf16.put(name + ".scale", "F32", np.full((1, 1), 3e-4, np.float32))
        source = self.write_source(self.bf16)
        self.assertFalse(self.check(self.quantize(source), source).lossless)

    def test_zeros_tiny_values_and_outliers(self):
        name = EXPERT + ".weight"
        values = self.bf16.array(name, np.uint16).copy()
        values[0] = 0
        values[1, :16] = 0x8000  # -0
        values[2, :16] = 0x0080  # 2^-126
        values[3, 5] = 0x4300  # 128
        self.bf16.put(name, "BF16", values)
        for part in ("w1", "w3"):
            zeros = self.bf16.tensors[f"layers.1.ffn.experts.1.{part}.weight"]
            zeros[2] = bytes(len(zeros[2]))
        tiny = np.full((128, 128), 2.0**-149, np.float32)  # over 6 it underflows
        self.bf16.put("layers.1.ffn.experts.0.w2.weight", "F32", tiny)
        down = "layers.1.ffn.experts.1.w2.weight"
        self.bf16.put(down, "BF16", np.full(self.bf16.tensors[down][1], 1, np.uint16))  # 2^-133
        source = self.write_source(self.bf16)
        for options in ((), ("--four-over-six",), ("--rounding", "half_step")):
            total = self.check(self.quantize(source, *options), source)
            self.assertGreater(total.zeroed_blocks, 0)
            self.assertGreater(total.scales_too_small, 0)

    def test_weights_near_both_ends_of_fp32(self):
        name = EXPERT + ".weight"
        weights = self.bf16.array(name, ml_dtypes.bfloat16).astype(np.float32)
        weights /= np.abs(weights).max()
        for amax in (3.38e38, 1e10, 1e-23, 3e-35, 1e-38, 1e-40):
            with self.subTest(amax=amax):
                values = (weights * np.float32(amax)).astype(ml_dtypes.bfloat16)
                for part in ("w1", "w3"):
                    matrix = f"{EXPERT[:-1]}{part[1]}.weight"
                    self.bf16.put(matrix, "BF16", values.view(np.uint16))
                source = self.write_source(self.bf16)
                self.check(self.quantize(source), source)
                if amax > 1e-35:  # else the reciprocal of the global scale is infinite
                    layout = "compressed-tensors"
                    self.check(self.quantize(source, "--layout", layout), source, layout)

    def test_names_of_transformers(self):
        for model in (self.official, self.bf16):
            to_transformers(model)
            source = self.write_source(model)
            for options in ((), ("--modules", "all", "--layout", "compressed-tensors")):
                self.check(self.quantize(source, *options), source, "auto")

    def test_nan_and_infinity_are_refused_by_name(self):
        name = EXPERT + ".weight"
        good = self.bf16.array(name, np.uint16).copy()
        for bits in (0x7FC0, 0x7F80, 0xFF80):
            values = good.copy()
            values[2, 3] = bits
            self.bf16.put(name, "BF16", values)
            result = run("quantize", self.write_source(self.bf16), self.folder / f"out{bits}")
            self.assertEqual((result.returncode, result.stdout), (FAILED, b""))
            message = result.stderr.decode().splitlines()[-1]  # after the progress
            for part in ("dsv4: ", EXPERT, "row 2", "column 3"):
                self.assertIn(part, message)


if __name__ == "__main__":
    main()
