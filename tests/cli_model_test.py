#!/usr/bin/env python3
"""Tests of the commands of dsv4 that look into models and measure them, and of damaged models.

    cli_model_test.py PROGRAM SOURCE_DIR [unittest arguments]

The slow class PerplexityOfHeldOutText is left out unless it is named.
"""

import json
import os
import shutil
import struct

from cli_testing import FAILED, NANO, SOURCE, CliTest, load_tests, main, run


def remove_last_expert(path, layer):
    """Writes the checkpoint anew with the last of `layer`'s 8 experts cut off, as pruning does."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, payload = {}, b""
    for name, info in json.loads(data[8 : 8 + size]).items():
        if name.startswith(f"{layer}.ffn.experts.7."):
            continue
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in info["data_offsets"])
            tensor = data[begin:end]
            if name.startswith(f"{layer}.ffn.gate."):  # a row an expert
                tensor = tensor[: len(tensor) * 7 // 8]
                info["shape"][0] = 7
            info["data_offsets"] = [len(payload), len(payload) + len(tensor)]
            payload += tensor
        header[name] = info
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)


def set_byte(path, name, offset, value):
    """Overwrites one byte of a tensor."""
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    begin, _ = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    data[8 + size + begin + offset] = value
    path.write_bytes(data)


class DamagedModels(CliTest):
    def expect_all_fail(self, model, *parts):
        for arguments in (["generate", model, "-p", "x"], ["inspect", model]):
            with self.subTest(arguments=arguments):
                self.expect_error(run(*arguments), FAILED, *parts)

    def test_missing_directory(self):
        self.expect_all_fail(self.folder / "nowhere", "not found", "nowhere")

    def test_missing_files(self):
        model = self.copy_of_nano(without=["config.json"])
        self.expect_all_fail(model, "config.json")
        shutil.copy(NANO / "config.json", model)
        (model / "model.safetensors").unlink()
        self.expect_all_fail(model, "safetensors")

    def test_missing_tokenizer_stops_only_who_needs_it(self):
        model = self.copy_of_nano(without=["tokenizer.json"])
        self.expect_done(run("inspect", model))
        self.expect_done(run("generate", model, "--ids", "-p", "5 6", "-n", "1"))
        self.expect_error(run("generate", model, "-p", "x"), FAILED, "tokenizer.json")
        self.expect_error(run("tokenize", model, stdin="x"), FAILED, "tokenizer.json")

    def test_truncated_weights(self):
        model = self.copy_of_nano()
        weights = model / "model.safetensors"
        data = weights.read_bytes()
        for size in (0, 7, 8, 100, len(data) // 2, len(data) - 1):
            weights.write_bytes(data[:size])
            with self.subTest(size=size):
                self.expect_all_fail(model, "model.safetensors")

    def test_header_length_beyond_the_file(self):
        model = self.copy_of_nano()
        with open(model / "model.safetensors", "r+b") as file:
            file.write(struct.pack("<Q", 2**63))
        self.expect_all_fail(model, "model.safetensors")

    def test_config_that_is_not_json(self):
        model = self.copy_of_nano()
        (model / "config.json").write_bytes(b'{"hidden_size": \xff\x00')
        self.expect_all_fail(model, "config.json")

    def test_tensor_name_cannot_write_to_the_terminal(self):
        model = self.copy_of_nano()
        data = (model / "model.safetensors").read_bytes()
        self.assertIn(b'"head.weight"', data)
        evil = data.replace(b'"head.weight"', b'"h\\u001b[2J.w"', 1)
        (model / "model.safetensors").write_bytes(evil)
        result = run("inspect", model)
        self.assertEqual(result.returncode, FAILED)
        self.assertNotIn(b"\x1b", result.stdout + result.stderr)
        self.assertEqual(result.stderr.count(b"\n"), 1)


class Inspect(CliTest):
    def test_shows_config_layers_and_formats(self):
        text = self.expect_done(run("inspect", NANO))
        for part in ("window", "CSA 4", "HCA 128", "hash", "score", "MXFP4", "FP8", "mtp.0"):
            self.assertIn(part, text)

    def test_json_adds_up(self):
        reply = json.loads(self.expect_done(run("inspect", NANO, "--json")))
        self.assertEqual(reply["config"]["num_layers"], 6)
        ratios = [layer["compress_ratio"] for layer in reply["layers"]]
        self.assertEqual(ratios, [0, 4, 128, 4, 128, 4, 0])
        size = sum(f["bytes"] for f in reply["formats"]) + sum(u["bytes"] for u in reply["unused"])
        self.assertEqual(size, reply["payload_bytes"])
        header = struct.unpack("<Q", (NANO / "model.safetensors").read_bytes()[:8])[0]
        self.assertEqual(size, os.path.getsize(NANO / "model.safetensors") - 8 - header)

    def test_says_what_is_exact_in_fp8(self):
        exact = self.expect_done(run("inspect", NANO))
        self.assertIn("\nexact in FP8: all 229 quantised matrices\n", exact)
        model = SOURCE / "tests" / "data" / "golden" / "flash-nvfp4"
        self.assertIn("\nneeds BF16: 72 of 134 ", self.expect_done(run("inspect", model)))
        fp8 = json.loads(self.expect_done(run("inspect", model, "--json")))["fp8"]
        groups = {group["matrices"]: group for group in fp8["groups"]}
        self.assertFalse(groups["expert up"]["exact_in_fp8"])
        self.assertTrue(groups["draft expert up"]["exact_in_fp8"])
        self.assertEqual(len(fp8["matrices"]), 72 + 18)
        self.assertEqual(sum(not matrix["exact_in_fp8"] for matrix in fp8["matrices"]), 72)

    def test_without_scales_nothing_is_said_of_fp8(self):
        whole = self.expect_done(run("inspect", NANO))
        text = self.expect_done(run("inspect", NANO, "--no-scales"))
        self.assertNotIn("in FP8", text)
        for part in whole.split("\n\n"):
            self.assertEqual(part in text, "in FP8" not in part, part)
        reply = json.loads(self.expect_done(run("inspect", NANO, "--no-scales", "--json")))
        with_scales = json.loads(self.expect_done(run("inspect", NANO, "--json")))
        del with_scales["fp8"]
        self.assertEqual(reply, with_scales)

    def test_one_scale_that_is_nan_needs_bf16(self):
        model = self.copy_of_nano()
        set_byte(model / "model.safetensors", "layers.1.ffn.experts.2.w3.scale", 7, 0xFF)
        text = self.expect_done(run("inspect", model))
        self.assertIn("\nneeds BF16: 1 of 229 ", text)
        row = next(line for line in text.splitlines() if line.startswith("expert up"))
        self.assertEqual(row.split()[3:5], ["48", "47"])

    def test_experts_of_a_pruned_layer_are_its_own(self):
        model = self.copy_of_nano()
        remove_last_expert(model / "model.safetensors", "layers.5")
        result = run("inspect", model)
        rows = [line for line in self.expect_done(result).splitlines() if "MXFP4" in line]
        counts = {row.split()[0]: row.split()[-2:] for row in rows if row.split()[-1] == "MXFP4"}
        self.assertEqual(counts["layers.4"], ["8", "MXFP4"])
        self.assertEqual(counts["layers.5"], ["7", "MXFP4"])
        reply = json.loads(self.expect_done(run("inspect", model, "--json")))
        self.assertEqual([layer["num_experts"] for layer in reply["layers"]], [8] * 5 + [7, 8])


class Verify(CliTest):
    def test_says_which_activations_did_not_run_as_asked(self):
        model = SOURCE / "tests" / "data" / "golden" / "flash-bf16"
        golden = model / "golden-qat.safetensors"
        result = run("verify", model, "--golden", golden, "--activations", "a8")
        self.expect_done(result)
        self.assertIn("note: ", result.stderr.decode())
        self.assertIn("a16", result.stderr.decode())


class Perplexity(CliTest):
    def test_small_windows(self):
        text = (NANO / "held_out.txt").read_bytes()[:600]
        path = self.write("text.txt", text)
        result = run("perplexity", NANO, path, "--window", "32")
        self.assertRegex(self.expect_done(result), r"^\d+\.\d{6}\n$")
        reply = json.loads(
            self.expect_done(run("perplexity", NANO, "-", "--window", "32", "--json", stdin=text))
        )
        self.assertAlmostEqual(reply["perplexity"], float(result.stdout), places=6)
        self.assertEqual(reply["scored_tokens"], 31 * len(reply["window_perplexities"]))

    def test_text_shorter_than_a_window(self):
        path = self.write("text.txt", "short")
        self.expect_error(run("perplexity", NANO, path), FAILED, "1024", "window")

    def test_missing_file(self):
        self.expect_error(run("perplexity", NANO, self.folder / "none"), FAILED, "none")


class PerplexityOfHeldOutText(CliTest):
    slow = True

    def test_recorded_value(self):
        """models/nano/README.md: 1.8153 over 8 windows, the first alone 1.6190 (a16)."""
        result = run("perplexity", NANO, NANO / "held_out.txt", "--activations", "a16", "--json")
        reply = json.loads(self.expect_done(result))
        self.assertEqual(reply["scored_tokens"], 8184)
        # 0.02%, and half a unit of the recorded value's last digit.
        self.assertAlmostEqual(reply["perplexity"], 1.8153, delta=1.8153 * 0.0002 + 0.00005)
        self.assertAlmostEqual(
            reply["window_perplexities"][0], 1.6190, delta=1.6190 * 0.0002 + 0.00005
        )


if __name__ == "__main__":
    main()
