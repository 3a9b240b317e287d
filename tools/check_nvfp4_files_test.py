#!/usr/bin/env python3
"""Mistakes of a checkpoint's files and of what its JSON says, one for every rule: check_nvfp4.py must
refuse each by name. Mistakes of tensors: check_nvfp4_test.py.

    check_nvfp4_files_test.py PACKAGES_DIR [unittest arguments]

Fetches the checker's packages into PACKAGES_DIR; ends with 77, skipped, where that is not possible.
"""

import contextlib
import copy
import io
import json
import struct
import sys
import unittest
import unittest.mock
from pathlib import Path

import fetch_python_packages

TOOLS = Path(__file__).resolve().parent

if __name__ == "__main__":
    fetch_python_packages.import_from(TOOLS / "nvfp4_checker" / "requirements.txt", sys.argv[1])

import check_nvfp4  # noqa: E402
from check_nvfp4_testing import (  # noqa: E402
    EXPERT,
    GOLDEN,
    CheckerTest,
    cast_to_nvfp4,
    experts_of,
    to_compressed_tensors,
)


class RefusedFiles(CheckerTest):
    def setUp(self):
        super().setUp()
        self.folder = self.model.write(self.root / "sharded", num_shards=3)
        self.index_path = self.folder / "model.safetensors.index.json"
        self.index = json.loads(self.index_path.read_text())

    def write_index(self):
        self.index_path.write_text(json.dumps(self.index))

    def test_tensor_in_another_shard_than_the_index_says(self):
        shards = sorted(set(self.index["weight_map"].values()))
        now = self.index["weight_map"][EXPERT + ".weight"]
        self.index["weight_map"][EXPERT + ".weight"] = next(s for s in shards if s != now)
        self.write_index()
        self.expect_refused(EXPERT + ".weight", "index", model=self.folder)

    def test_tensor_that_the_index_lacks(self):
        del self.index["weight_map"][EXPERT + ".weight"]
        self.write_index()
        self.expect_refused(EXPERT + ".weight", "index", model=self.folder)

    def test_index_out_of_the_folder(self):
        self.index["weight_map"][EXPERT + ".weight"] = "../model.safetensors"
        self.write_index()
        self.expect_refused(EXPERT + ".weight", "index", "out of the folder", model=self.folder)

    def test_total_size(self):
        self.index["metadata"]["total_size"] += 1
        self.write_index()
        self.expect_refused("model.safetensors.index.json", "total-size", model=self.folder)

    def test_missing_and_stray_shards(self):
        shard = self.folder / "model-00002-of-00003.safetensors"
        shard.rename(self.folder / "model-00004-of-00003.safetensors")
        self.expect_refused(shard.name, "index", "missing", model=self.folder)
        self.expect_refused("model-00004-of-00003.safetensors", "index", model=self.folder)

    def test_run_that_did_not_end(self):
        (self.folder / ".dsv4-quantize.json").write_text("{}")
        self.expect_refused(".dsv4-quantize.json", "unfinished", model=self.folder)

    def test_truncated_shard(self):
        shard = self.folder / "model-00002-of-00003.safetensors"
        shard.write_bytes(shard.read_bytes()[:-1])
        self.expect_refused(shard.name, "container", model=self.folder)

    def test_offsets_from_the_start_of_the_file(self):
        path = self.model.write(self.root / "offsets") / "model.safetensors"
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + size])
        for info in header.values():
            info["data_offsets"] = [8 + size + offset for offset in info["data_offsets"]]
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
        self.expect_refused(path.name, "container", model=path.parent)

    def test_misaligned_scalar(self):
        path = self.root / "misaligned"
        self.model.write(path)
        tensors = self.model.tensors
        first = {"layers.0.attn.wkv.weight": tensors["layers.0.attn.wkv.weight"]}
        scale = tensors[EXPERT + ".weight_scale_2"]
        header, payload = {}, b""
        for name, (dtype, shape, data) in {
            **first,
            "odd": ["U8", [1], b"x"],
            EXPERT + ".weight_scale_2": scale,
        }.items():
            offsets = [len(payload), len(payload) + len(data)]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            payload += data
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)
        self.expect_refused(EXPERT + ".weight_scale_2", "alignment", model=path)

    def test_files_that_are_missing_or_no_json(self):
        (self.folder / "config.json").write_text('{"hidden_size": 1, "hidden_size": 2}')
        self.expect_refused(str(self.folder), "container", "twice", model=self.folder)
        (self.folder / "config.json").unlink()
        self.expect_refused(str(self.folder), "container", "config.json", model=self.folder)

    def test_json_of_the_wrong_kind(self):
        changes = (
            (self.model.config, "num_hidden_layers", 99),  # more than compress_ratios has
            (self.model.config["quantization_config"], "config_groups", [7]),
            (self.model.files["hf_quant_config.json"], "quantization", {"config_groups": {"a": 7}}),
        )
        for values, key, wrong in changes:
            with self.subTest(key=key):
                good, values[key] = values[key], wrong
                path = self.model.write(self.root / key)
                self.expect_refused(str(path), "container", "wrong kind", model=path)
                values[key] = good

    def test_a_source_that_cannot_be_read_is_no_fault_of_the_model(self):
        missing = self.folder / "nowhere"
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            with unittest.mock.patch("sys.argv", ["", str(GOLDEN / "flash-nvfp4"), "--source", str(missing)]):
                self.assertEqual(check_nvfp4.main(), 2)
        self.assertIn(f"the source {missing} cannot be read", errors.getvalue())


class RefusedConfigs(CheckerTest):
    def both(self):
        return (self.quantization, self.model.files["hf_quant_config.json"]["quantization"])

    def test_quantized_layers_say_too_little_or_too_much(self):
        for quantization in self.both():
            del quantization["quantized_layers"]["layers.1.ffn.experts"]
        self.expect_refused(EXPERT, "config", "quantized_layers")
        claim = {"quant_algo": "NVFP4", "group_size": 16}
        for quantization in self.both():
            quantization["quantized_layers"]["layers.1.ffn.experts"] = claim
            quantization["quantized_layers"]["layers.1.attn.wkv"] = claim
        self.expect_refused("layers.1.attn.wkv", "config", "FP8")
        self.expect_refused("config.json: layers.1.attn.wkv", "config", "no such matrix is NVFP4")

    def test_draft_block_claimed_but_not_converted(self):
        for quantization in self.both():
            quantization["quantized_layers"]["mtp.0.ffn.experts"] = {
                "quant_algo": "NVFP4",
                "group_size": 16,
            }
        self.expect_refused("mtp.0.ffn.experts.0.w1", "config", "MXFP4")

    def test_draft_block_converted_but_not_claimed(self):
        cast_to_nvfp4(self.model, experts_of(self.model, "mtp."))
        self.expect_refused("mtp.0.ffn.experts.0.w1", "config", "mtp.*")

    def test_excluded_and_yet_nvfp4(self):
        self.quantization["ignore"].append("layers.1.ffn.*")
        self.expect_refused(EXPERT, "config", "layers.1.ffn.*")

    def test_files_differ_or_lack(self):
        self.model.files["hf_quant_config.json"]["quantization"]["group_size"] = 32
        self.expect_refused("hf_quant_config.json", "config", "group_size differs")
        self.model.files["hf_quant_config.json"]["quantization"]["exclude_modules"] = ["head"]
        self.expect_refused("hf_quant_config.json", "config", "exclude_modules differs")
        self.model.files["hf_quant_config.json"] = {"quant_algo": "NVFP4"}
        self.expect_refused("hf_quant_config.json", "config", 'no "quantization"')
        self.model.files = {}
        self.expect_refused("hf_quant_config.json", "config", "missing")

    def test_values(self):
        for key, value in (
            ("quant_method", "modelopt"),
            ("quant_algo", "FP8"),
            ("weight_block_size", [32, 32]),
            ("ignore", None),
        ):
            model = copy.deepcopy(self.good)
            model.config["quantization_config"][key] = value
            self.expect_refused("config.json", "config", model=model)
        self.model.config["expert_dtype"] = "fp8"
        self.expect_refused("config.json", "config", "expert_dtype")
        del self.model.config["quantization_config"]
        self.expect_refused("config.json", "config", "quantization_config")

    def test_quantized_layers_that_say_nothing(self):
        for quantization in self.both():
            quantization["quantized_layers"]["layers.0.ffn.experts"] = "NVFP4"
        self.expect_refused("config.json", "config", "is no object")

    def test_quantized_layers_of_another_format(self):
        for key, value in (("quant_algo", "FP8"), ("group_size", 32)):
            with self.subTest(key=key):
                model = copy.deepcopy(self.model)
                layers = model.config["quantization_config"]["quantized_layers"]
                layers["layers.0.ffn.experts"] = {"quant_algo": "NVFP4", "group_size": 16, key: value}
                where = "config.json: layers.0.ffn.experts"
                self.expect_refused(where, "config", key, model=model)

    def test_without_quantized_layers(self):
        for quantization in self.both():
            del quantization["quantized_layers"]
        self.expect_accepted()
        for key in ("moe_quant_algo", "group_size"):
            with self.subTest(key=key):
                model = copy.deepcopy(self.model)
                del model.config["quantization_config"][key]
                self.expect_refused("config.json", "config", key, model=model)

    def test_number_of_experts(self):
        for wrong in (1, 3, 5, 256):
            self.model.config["n_routed_experts"] = wrong
            self.expect_refused("config.json", "config", f"n_routed_experts is {wrong}", "has 4")

    def test_dynamic_inputs_beside_input_scales(self):
        for quantization in self.both():
            quantization["config_groups"]["group_0"]["input_activations"]["dynamic"] = True
        self.expect_refused("config.json: config_groups.group_0", "config", "dynamic")

    def test_schemes_of_another_format(self):
        for part, key, value in (
            ("weights", "num_bits", 8),
            ("weights", "dynamic", True),
            ("input_activations", "group_size", 32),
        ):
            with self.subTest(part=part, key=key):
                model = copy.deepcopy(self.model)
                group = model.config["quantization_config"]["config_groups"]["group_0"]
                group[part][key] = value
                where = "config.json: config_groups.group_0"
                self.expect_refused(where, "config", f"{part}.{key}", model=model)

    def test_compressed_tensors(self):
        to_compressed_tensors(self.model)
        good = self.model

        def expect(where, part, change):
            model = copy.deepcopy(good)
            change(model.config["quantization_config"])
            self.expect_refused(where, "config", part, model=model)

        expect("config.json", "stars", lambda c: c["ignore"].append("mtp.*"))
        for key, value in (
            ("format", "float-quantized"),
            ("quant_method", "fp8"),
            ("quantization_status", "initialized"),
        ):
            expect("config.json", key, lambda c, key=key, value=value: c.update({key: value}))
        expect(
            "config.json: config_groups.group_0",
            "strategy",
            lambda c: c["config_groups"]["group_0"]["weights"].update(strategy="group"),
        )
        expect(EXPERT, "config_groups", lambda c: c["ignore"].append("re:.*experts.2.w1"))
        expect(
            "config.json: config_groups.group_0",
            "dynamic",
            lambda c: c["config_groups"]["group_0"]["input_activations"].update(dynamic=True),
        )

        model = copy.deepcopy(good)
        for part in ("w1", "w3"):
            del model.tensors[f"layers.1.ffn.experts.2.{part}.input_global_scale"]
        self.expect_refused(EXPERT, "config", "no input scale", model=model)

        def everything(config):
            del config["config_groups"]["group_1"]
            config["config_groups"]["group_0"]["targets"] = ["Linear"]
            config["ignore"] = []

        expect("layers.0.attn.wkv", "claims another format", everything)
        expect("mtp.0.ffn.experts.0.w1", "MXFP4", everything)
        # Read as BF16, as FP8 in the ignore list of ModelOpt's files has been.
        expect("layers.0.attn.wkv", "take it for BF16", lambda c: c["config_groups"].pop("group_1"))
        expect("layers.0.attn.wkv", "take it for BF16", lambda c: c["ignore"].append("re:.*attn.*"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
