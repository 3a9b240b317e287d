#!/usr/bin/env python3
"""Hand-made NVFP4 checkpoints that check_nvfp4.py must accept, and one for every mistake that it
must refuse with the tensor's name. Mistakes of whole files and of the config:
check_nvfp4_files_test.py. What dsv4 writes itself: tests/quantize_check_test.py.

    check_nvfp4_test.py PACKAGES_DIR [unittest arguments]

Fetches the checker's packages into PACKAGES_DIR; ends with 77, skipped, where that is not possible.
"""

import copy
import json
import struct
import sys
import unittest
from pathlib import Path

import fetch_python_packages

TOOLS = Path(__file__).resolve().parent

if __name__ == "__main__":
    fetch_python_packages.import_from(TOOLS / "nvfp4_checker" / "requirements.txt", sys.argv[1])

import numpy as np  # noqa: E402

import check_nvfp4  # noqa: E402
from check_nvfp4_testing import (  # noqa: E402
    EXPERT,
    GOLDEN,
    CheckerTest,
    Checkpoint,
    cast_to_nvfp4,
    experts_of,
    prune_layer,
    set_modelopt_config,
    to_compressed_tensors,
    to_transformers,
)
from nvfp4_checker import codecs  # noqa: E402


class Accepted(CheckerTest):
    def test_modelopt_as_nvidia_releases_it(self):
        self.expect_accepted()
        self.expect_accepted(layout="modelopt", num_shards=3)

    def test_older_schema_with_a_key_a_matrix(self):
        claim = {"quant_algo": "NVFP4", "awq_block_size": 16}
        names = [name[: -len(".weight_scale_2")] for name in self.model.names(".weight_scale_2")]
        for quantization in (
            self.quantization,
            self.model.files["hf_quant_config.json"]["quantization"],
        ):
            for key in ("moe_quant_algo", "group_size", "config_groups"):
                del quantization[key]
            quantization["quant_algo"] = None
            quantization["quantized_layers"] = {name: dict(claim) for name in names}
        self.expect_accepted()

    def test_nvfp4_golden_model(self):
        model = Checkpoint(GOLDEN / "flash-nvfp4")
        quantization = dict(model.config["quantization_config"])
        excluded = quantization.pop("ignore")
        model.files["hf_quant_config.json"] = {
            "quantization": {**quantization, "exclude_modules": excluded}
        }
        self.expect_accepted(model)

    def test_compressed_tensors_with_and_without_input_scales(self):
        for with_inputs in (True, False):
            model = copy.deepcopy(self.good)
            to_compressed_tensors(model, with_inputs)
            self.expect_accepted(model, layout="compressed-tensors")
            self.expect_accepted(model, source=self.official)

    def test_scalars_of_either_shape_and_no_draft_block(self):
        for name in self.model.names(("weight_scale_2")) + self.model.names("input_scale"):
            self.model.tensors[name][1] = [1]
        for name in [name for name in self.model.tensors if name.startswith("mtp.")]:
            del self.model.tensors[name]
        self.expect_accepted()

    def test_fp8_scales_as_numbers(self):
        name = "layers.0.attn.wkv.scale"
        scales = codecs.e8m0_values(self.model.array(name))
        for factor in (1, 2.0**20, 2.0**100):  # large ones are whole numbers, too
            self.model.put(name, "F32", scales * np.float32(factor))
            self.expect_accepted()

    def test_an_all_zero_expert(self):
        for part in ("w1", "w3"):
            matrix = f"layers.1.ffn.experts.2.{part}"
            codes = self.model.tensors[matrix + ".weight"]
            codes[2] = bytes(len(codes[2]))
            self.model.scalar(matrix + ".weight_scale_2", 1)
        self.expect_accepted()

    def test_cast_is_lossless(self):
        total = self.expect_accepted(source=self.official).totals()["total"]
        self.assertTrue(total.lossless)
        self.assertEqual(total.values, 48 * 128 * 128)  # 4 layers of 4 experts
        self.assertEqual(total.cast_blocks, total.quant_blocks)
        self.assertEqual((total.relative_error, total.worst_error), (0, 0))

    def test_source_in_the_spellings_of_transformers(self):
        source = copy.deepcopy(self.official)
        to_transformers(source)
        self.assertIn("model.layers.1.mlp.experts.2.gate_proj.weight", source.tensors)
        self.model.config = {**source.config, "quantization_config": self.quantization}
        self.assertTrue(self.expect_accepted(source=source).totals()["total"].lossless)

    def test_source_with_a_prefix_and_another_name_for_scales(self):
        source = copy.deepcopy(self.official)
        for name in list(source.tensors):
            scale = ".weight_scale_inv" if ".attn." in name else ".scale"
            source.rename(name, "model." + name.replace(".scale", scale))
        self.assertIn("model.layers.0.attn.wkv.weight_scale_inv", source.tensors)
        self.assertTrue(self.expect_accepted(source=source).totals()["total"].lossless)

    def test_source_with_two_spellings_of_one_tensor(self):
        source = copy.deepcopy(self.official)
        source.tensors["model.norm.weight"] = source.tensors["norm.weight"]
        findings, _, _ = check_nvfp4.check(
            self.model.write(self.root / "model"), source.write(self.root / "source")
        )
        self.assertIn("another spelling of norm.weight", " ".join(findings.notes))

    def test_weights_near_both_ends_of_fp32(self):
        """Global scales from 2^-131 to 2^117 are honest where the source has them; without it those
        that 1 / scale of a likely one would give are not."""
        for shift in (-120, -108, 20, 125):
            source = copy.deepcopy(self.official)
            for part in ("w1", "w3"):
                name = f"layers.1.ffn.experts.2.{part}.scale"
                scales = source.array(name).astype(int)
                scales += 127 + shift - 3 - scales.max()
                source.put(name, "F8_E8M0", np.clip(scales, 0, 254).astype(np.uint8))
            model = copy.deepcopy(source)
            cast_to_nvfp4(model, experts_of(model, "layers."))
            model.config, model.files = self.model.config, self.model.files
            self.assertTrue(self.expect_accepted(model, source=source).totals()["total"].lossless)
            if shift == 20:
                self.expect_refused(EXPERT, "reciprocal", model=model)
            else:
                self.expect_accepted(model)

    def test_layers_with_fewer_experts(self):
        """As pruning leaves them; a note."""
        prune_layer(self.model, 2, 3)
        self.expect_accepted()


class Refused(CheckerTest):
    """Single models; the mistake is in the test's name, the rule in what is expected."""

    def test_missing_scales(self):
        for suffix in ("weight_scale", "weight_scale_2"):
            model = copy.deepcopy(self.good)
            del model.tensors[f"{EXPERT}.{suffix}"]
            self.expect_refused(f"{EXPERT}.{suffix}", "missing-scale", model=model)

    def test_one_expert_without_input_scale(self):
        del self.model.tensors[EXPERT + ".input_scale"]
        self.expect_refused(EXPERT, "missing-scale", "input scale")

    def test_draft_block_without_input_scales(self):
        model = copy.deepcopy(self.official)
        cast_to_nvfp4(model, experts_of(model, ("layers.", "mtp.")))
        set_modelopt_config(model)
        for quantization in (
            model.config["quantization_config"],
            model.files["hf_quant_config.json"]["quantization"],
        ):
            quantization["quantized_layers"]["mtp.0.ffn.experts"] = {"quant_algo": "NVFP4"}
            quantization["quantized_layers"]["mtp.0.ffn.experts"]["group_size"] = 16
            quantization["config_groups"]["group_0"]["input_activations"]["dynamic"] = True
            quantization.get("ignore", quantization.get("exclude_modules")).remove("mtp.*")
        for name in model.names(".input_scale"):
            if name.startswith("mtp."):
                del model.tensors[name]
        self.expect_accepted(model)
        del model.tensors[EXPERT + ".input_scale"]
        self.expect_refused(EXPERT, "missing-scale", "has no input scale", model=model)

    def test_missing_matrix_of_an_expert(self):
        for name in self.model.names(""):
            if name.startswith("layers.1.ffn.experts.2.w2."):
                del self.model.tensors[name]
        self.expect_refused("layers.1.ffn.experts.2.w2", "missing-tensor")

    def test_missing_and_unknown_tensors(self):
        tensor = self.model.tensors.pop("hc_head_fn")
        self.model.tensors["model.hc_head.hc_fn"] = tensor
        self.expect_refused("hc_head_fn", "missing-tensor")
        self.expect_refused("model.hc_head.hc_fn", "unknown-tensor")

    def test_labels_of_another_format(self):
        for suffix, dtype in (
            ("weight", "I8"),
            ("weight_scale", "U8"),
            ("weight_scale", "F8_E8M0"),
        ):
            model = copy.deepcopy(self.good)
            model.tensors[f"{EXPERT}.{suffix}"][0] = dtype
            self.expect_refused(f"{EXPERT}.{suffix}", "dtype", dtype, model=model)
        name = "mtp.0.ffn.experts.0.w1"
        self.model.tensors[name + ".weight"][0] = "U8"
        self.expect_refused(name + ".weight_scale", "missing-scale")

    def test_shapes_of_scales(self):
        shape = self.good.tensors[EXPERT + ".weight_scale"][1]
        for wrong in ([shape[1], shape[0]], [shape[0] * shape[1]], [shape[0], shape[1] // 2]):
            model = copy.deepcopy(self.good)
            data = np.zeros(wrong, np.uint8) + 0x38
            model.put(EXPERT + ".weight_scale", "F8_E4M3", data)
            self.expect_refused(EXPERT + ".weight_scale", "shape", str(wrong), model=model)
        self.model.scalar(EXPERT + ".weight_scale_2", 2.0**-12, (1, 1))
        self.expect_refused(EXPERT + ".weight_scale_2", "shape", "[1, 1]")

    def test_shape_of_a_matrix_against_the_config(self):
        self.model.config["moe_intermediate_size"] = 64
        self.expect_refused(EXPERT, "shape", "128 x 128", "64 x 128")

    def test_output_projection_of_another_width(self):
        """hidden_size and the width of wo_a are equal on Flash alone."""
        name = "layers.0.attn.wo_a"
        rows, cols = self.model.tensors[name + ".weight"][1]
        self.model.put(name + ".weight", "F8_E4M3", np.zeros((rows, cols // 2), np.uint8))
        self.model.put(name + ".scale", "F8_E8M0", np.full((1, cols // 2 // 128), 120, np.uint8))
        self.expect_refused(name, "shape", f"{rows} x {cols // 2}", f"{rows} x {cols}")

    def test_hash_table_of_32_bits(self):
        name = "layers.0.ffn.gate.tid2eid"
        self.model.tensors[name][0] = "I32"
        self.model.tensors[name][2] = self.model.array(name, np.int64).astype(np.int32).tobytes()
        self.expect_refused(name, "dtype", "I32")

    def test_scalars_in_both_shapes(self):
        self.model.tensors[EXPERT + ".input_scale"][1] = [1]
        self.expect_refused(EXPERT + ".input_scale", "shape", "[1]")

    def test_reciprocal_scales(self):
        for suffix in ("weight_scale_2", "input_scale"):
            model = copy.deepcopy(self.good)
            for part in ("w1", "w3"):
                name = f"layers.1.ffn.experts.2.{part}.{suffix}"
                model.scalar(name, 1 / model.array(name, np.float32))
            self.expect_refused(EXPERT, "reciprocal", model=model)
        to_compressed_tensors(self.model)
        for suffix in ("weight_global_scale", "input_global_scale"):
            model = copy.deepcopy(self.model)
            name = f"layers.1.ffn.experts.2.w2.{suffix}"
            model.scalar(name, 1 / model.array(name, np.float32), (1,))
            self.expect_refused("layers.1.ffn.experts.2.w2", "reciprocal", model=model)

    def test_e8m0_bytes_as_numbers(self):
        name = "layers.0.attn.wkv.scale"
        numbers = self.model.array(name).astype(np.float32)  # 120 becomes 120.0
        self.model.put(name, "F32", numbers)
        self.expect_refused(name, "e8m0-as-number")
        self.model.put(name, "F8_E8M0", numbers.astype(np.uint8) * 0)  # 2^-7 becomes 0
        self.expect_refused(name, "e8m0-as-number")
        name = "mtp.0.ffn.experts.0.w1.scale"
        self.model.put(name, "F8_E8M0", self.model.array(name) * 0)
        self.expect_refused(name, "e8m0-as-number")

    def test_gate_and_up_differ(self):
        for suffix in ("weight_scale_2", "input_scale"):
            model = copy.deepcopy(self.good)
            name = f"{EXPERT}.{suffix}"
            model.scalar(name, model.array(name, np.float32) / 2)
            self.expect_refused("layers.1.ffn.experts.2.w3", "shared-scale", model=model)

    def test_left_over_scale(self):
        self.model.tensors[EXPERT + ".scale"] = self.official.tensors[EXPERT + ".scale"]
        self.expect_refused(EXPERT + ".scale", "leftover-scale")

    def test_scale_without_its_weight(self):
        del self.model.tensors[EXPERT + ".weight"]
        self.expect_refused(EXPERT, "missing-tensor")

    def test_scales_of_experts_in_mxfp4_and_nvfp4(self):
        for suffix in ("weight", "scale"):
            self.model.tensors[f"{EXPERT}.{suffix}"] = self.official.tensors[f"{EXPERT}.{suffix}"]
        for suffix in ("weight_scale", "weight_scale_2", "input_scale"):
            del self.model.tensors[f"{EXPERT}.{suffix}"]
        self.expect_refused(EXPERT, "mixed-experts", "MXFP4")

    def test_both_layouts(self):
        to_compressed_tensors(self.model)
        for suffix in ("weight", "weight_scale", "weight_scale_2", "input_scale"):
            name = f"{EXPERT}.{suffix}"
            self.model.tensors[name] = self.good.tensors[name]
        self.assertIn("layout", [rule for _, rule, _ in self.check()[0]])

    def test_the_layout_asked_for(self):
        refusals, _ = self.check(layout="compressed-tensors")
        self.assertIn("layout", [rule for _, rule, _ in refusals])
        refusals, _ = self.check(self.official)
        self.assertIn("layout", [rule for _, rule, _ in refusals])

    def test_nan_and_negative_block_scales(self):
        for byte, word in (
            (0x7F, "NaN"),
            (0xFF, "NaN"),
            (0x80, "negative"),
            (0xB8, "negative"),
            (0xFE, "negative"),
        ):
            model = copy.deepcopy(self.good)
            model.set_byte(EXPERT + ".weight_scale", 9, byte)
            self.expect_refused(
                EXPERT + ".weight_scale", "nan-scale", word, "row 1, block 1", model=model
            )
        self.model.set_byte("mtp.0.ffn.experts.0.w1.scale", 0, 0xFF)
        self.expect_refused("mtp.0.ffn.experts.0.w1.scale", "nan-scale")

    def test_block_scales_that_are_all_0(self):
        name = EXPERT + ".weight_scale"
        zeros = np.zeros_like(self.model.array(name))
        self.model.put(name, "F8_E4M3", zeros)
        self.expect_refused(name, "zero-scales")
        zeros[5, 1] = 0x38  # of one block in many: a note
        self.model.put(name, "F8_E4M3", zeros)
        self.expect_accepted()

    def test_scalars_that_are_not_positive_and_finite(self):
        for value in (0, -1e-4, np.inf, np.nan, 1e-42):
            for suffix in ("weight_scale_2", "input_scale"):
                if (value, suffix) == (1e-42, "weight_scale_2"):
                    continue  # its reciprocal is infinite, which nobody takes
                model = copy.deepcopy(self.good)
                model.scalar(f"{EXPERT}.{suffix}", value)
                self.expect_refused(f"{EXPERT}.{suffix}", "bad-scalar", model=model)

    def test_fp8_values_and_scales(self):
        self.model.set_byte("layers.0.attn.wkv.weight", 130, 0x7F)
        self.expect_refused("layers.0.attn.wkv.weight", "nan-value", "row 1, column 2")
        self.model.set_byte("layers.0.attn.wkv.scale", 0, 0xFF)
        self.expect_refused("layers.0.attn.wkv.scale", "bad-scalar")


class RefusedAgainstTheSource(CheckerTest):
    def expect(self, where, rule, *parts):
        self.expect_refused(where, rule, *parts, source=self.official)

    def test_swapped_nibbles(self):
        name = EXPERT + ".weight"
        codes = self.model.array(name)
        self.model.put(name, "U8", codes >> 4 | codes << 4)
        self.expect(EXPERT, "source", "nibbles")

    def test_swizzled_scales(self):
        name = EXPERT + ".weight_scale"
        scales = self.model.array(name)
        rows, cols = scales.shape
        swizzled = np.zeros(scales.size, np.uint8)
        for row in range(rows):
            for col in range(cols):
                offset = ((row // 128 * (cols // 4) + col // 4) * 32 + row % 32) * 16
                swizzled[offset + row % 128 // 32 * 4 + col % 4] = scales[row, col]
        self.assertGreater(len(np.unique(scales)), 1)  # else their places would not matter
        self.model.put(name, "F8_E4M3", swizzled.reshape(rows, cols))
        self.expect(EXPERT, "source", "swizzled")

    def test_gate_and_up_swapped(self):
        for suffix in ("weight", "weight_scale"):
            one, three = (f"layers.1.ffn.experts.2.w{i}.{suffix}" for i in (1, 3))
            tensors = self.model.tensors
            tensors[one], tensors[three] = tensors[three], tensors[one]
        self.expect(EXPERT, "source", "w3")

    def test_e8m0_bytes_as_e4m3(self):
        name = EXPERT + ".weight_scale"
        official = np.repeat(self.official.array(EXPERT + ".scale"), 2, axis=1)
        self.model.put(name, "F8_E4M3", official)
        self.expect(EXPERT, "source")

    def test_one_code_and_one_scale(self):
        self.model.set_byte(
            EXPERT + ".weight", 100, self.model.array(EXPERT + ".weight").flat[100] ^ 1
        )
        self.expect(EXPERT, "encoding", "1 of", "row 1, block 4")

    def test_global_scale_that_is_not_the_rules(self):
        for part in ("w1", "w3"):
            name = f"layers.1.ffn.experts.2.{part}.weight_scale_2"
            self.model.scalar(name, self.model.array(name, np.float32) * np.float32(1.01))
        self.expect(EXPERT, "encoding", "global scale")

    def test_tensors_that_should_be_copies(self):
        self.model.set_byte("layers.0.attn.wkv.weight", 5, 1)
        self.expect("layers.0.attn.wkv.weight", "copy", "bytes")
        name = "layers.0.attn.wkv.scale"
        self.model.put(name, "F32", codecs.e8m0_values(self.model.array(name)))
        self.expect(name, "copy", "F32")
        del self.model.tensors["mtp.0.norm.weight"]
        self.expect("mtp.0.norm.weight", "copy")

    def test_config_that_should_be_a_copy(self):
        self.model.config["torch_dtype"] = "float32"  # by whoever wrote the file
        self.expect_accepted(source=self.official)
        self.model.config["swiglu_limit"] *= 2
        self.expect("config.json", "copy", "swiglu_limit")
        del self.model.config["swiglu_limit"]
        path = self.model.write(self.root / "lacks")
        findings, _, _ = check_nvfp4.check(path, GOLDEN / "flash-official")
        self.assertEqual(findings.refusals, [])
        self.assertIn("config.json lacks what the source's has: swiglu_limit", findings.notes)

    def test_report_that_lies(self):
        total = self.expect_accepted(source=self.official).totals()["total"]
        claim = {
            key: getattr(total, key)
            for key in (
                "values",
                "exact_values",
                "source_squares",
                "error_squares",
                "dot",
                "quant_blocks",
                "cast_blocks",
                "reencoded_blocks",
                "zeroed_blocks",
                "saturated_values",
                "scales_too_large",
                "scales_too_small",
                "exact_share",
                "relative_error",
                "cosine",
            )
        }
        self.model.files["quantization_report.json"] = {"total": claim, "kinds": []}
        self.expect("quantization_report.json", "report", "the tensors only")
        for key, value in (
            ("exact_values", 1),
            ("error_squares", 1.0),
            ("cosine", 0.999),
            ("worst_block", {"relative_error": 0.1}),
        ):
            model = {"total": {**claim, key: value}, "kinds": []}
            self.model.files["quantization_report.json"] = model
            self.expect("quantization_report.json", "report", f"total: {key}")
        model = {"options": {"rounding": "up"}, "total": claim, "kinds": []}
        self.model.files["quantization_report.json"] = model
        refusals, _ = self.check(source=self.official)
        self.assertIn("options.rounding is 'up'", refusals[0][2])


class Encoding(CheckerTest):
    """The checker's own arithmetic, against recorded bytes of another implementation."""

    def test_golden_codecs(self):
        golden = Checkpoint.__new__(Checkpoint)
        data = (GOLDEN / "codecs" / "nvfp4.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        golden.tensors = {}
        for name, info in json.loads(data[8 : 8 + size]).items():
            begin, end = (8 + size + offset for offset in info["data_offsets"])
            golden.tensors[name] = [info["dtype"], info["shape"], data[begin:end]]
        for name in ("heavy", "normal", "ties", "wide", "zeros_tiny_outliers"):
            bits = golden.array(name + ".x", np.uint16).astype(np.uint32) << 16
            values = bits.view(np.float32)
            scale = golden.array(name + ".global_scale", np.float32)[()]
            self.assertEqual(codecs.global_scale_of(np.abs(values).max()), scale)
            codes, scales = codecs.encode_nvfp4(values, scale, "nearest_even")
            np.testing.assert_array_equal(codes, golden.array(name + ".codes"))
            np.testing.assert_array_equal(scales, golden.array(name + ".block_scales"))

    def test_half_steps(self):
        """5.25 rounds to 5 and then to 4, 2.6 to 2.5 and then to 2."""
        values = np.array([[5.25, 2.6, -0.2, -0.0, 3.5, 7.0, 0.26, -5.2]], np.float32)
        codes = codecs.encode_e2m1(values, "half_step")
        np.testing.assert_array_equal(codes, [[6, 4, 8, 8, 6, 7, 1, 14]])

    def test_four_over_six_takes_the_smaller_error(self):
        """5 / 6 of the largest is between 4 and 6 under the one scale, 3.33 under the other."""
        values = np.zeros((1, 32), np.float32)
        values[0, :2] = (6, 5)
        values[0, 16:18] = (6, 4)
        codes, scales = codecs.encode_nvfp4(values, 1.0, "nearest_even", four_over_six=True)
        np.testing.assert_array_equal(codecs.e4m3_values(scales), [[1.5, 1.0]])
        np.testing.assert_array_equal(codecs.unpack(codes)[0, [0, 1, 16, 17]], [6, 5, 7, 6])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
