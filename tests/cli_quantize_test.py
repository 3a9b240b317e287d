#!/usr/bin/env python3
"""Tests of dsv4 quantize from outside: output, options, exit codes, a kill and what comes after it.

    cli_quantize_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree

from cli_testing import BAD_USAGE, DONE, FAILED, NANO, PROGRAM, CliTest, load_tests, main, run


class Quantize(CliTest):
    def out(self, name="out"):
        return self.folder / name

    def test_nano_is_cast_and_loads(self):
        result = run("quantize", NANO, self.out())
        table = self.expect_done(result)
        self.assertIn("expert gate", table)
        self.assertIn("note: The experts have no input scales", table)
        self.assertIn("/s", result.stderr.decode())
        inspected = json.loads(self.expect_done(run("inspect", self.out(), "--json")))
        self.assertEqual([layer["experts"] for layer in inspected["layers"]], ["NVFP4"] * 6 + ["MXFP4"])
        self.assertEqual(inspected["notes"], [])
        self.expect_done(run("generate", self.out(), "-p", "Once", "--max-tokens", "3"))

    def test_json_is_the_report_and_the_plot_is_drawn(self):
        plot = self.folder / "plot.svg"
        result = run("quantize", NANO, self.out(), "--json", "--plot", plot)
        report = json.loads(self.expect_done(result))
        self.assertEqual(report, json.loads((self.out() / "quantization_report.json").read_text()))
        self.assertTrue(xml.etree.ElementTree.parse(plot).getroot().tag.endswith("svg"))

    def test_a_plot_takes_no_models_place(self):
        source = self.folder / "source"
        shutil.copytree(NANO, source)
        before = (source / "model.safetensors").read_bytes()
        for plot, words in (
            (source / "model.safetensors", "must end in .svg"),
            (self.out() / "model.safetensors", "must end in .svg"),
            (source / "new.svg", "lies in the source"),
            (self.folder / "source" / "." / "deep" / "new.svg", "lies in the source"),
            (self.folder / "missing" / "new.svg", "no directory"),
        ):
            self.expect_error(run("quantize", source, self.out(), "--plot", plot), FAILED, words)
            self.assertFalse(self.out().exists(), plot)
        self.assertEqual((source / "model.safetensors").read_bytes(), before)
        self.expect_done(run("quantize", source, self.out(), "--plot", self.out() / "errors.svg"))
        self.assertTrue((self.out() / "errors.svg").exists())

    def test_options_reach_the_report(self):
        self.expect_done(
            run(
                "quantize", "--modules", "experts,head", NANO, self.out(), "--layout", "compressed-tensors",
                "--rounding", "half_step", "--four-over-six", "--max-memory", "300MiB", "--threads", "1",
                "--device", "reference",
            )
        )
        options = json.loads((self.out() / "quantization_report.json").read_text())["options"]
        self.assertEqual(options["layout"], "compressed-tensors")
        self.assertEqual(options["modules"], "experts,head")
        self.assertEqual(options["rounding"], "half_step")
        self.assertEqual(options["four-over-six"], "on")

    def test_empty_names_are_refused(self):
        for option in ("--plot", "--calibrate", "--evaluate", "--text"):
            result = run("quantize", NANO, self.out(), option, "")
            self.expect_error(result, BAD_USAGE, option, "the name is empty")
        self.expect_error(run("quantize", NANO, ""), FAILED, "empty")
        self.expect_error(run("quantize", "", self.out()), FAILED)
        self.assertFalse(self.out().exists())

    def test_refusals(self):
        out = self.out()
        self.expect_error(run("quantize", NANO, NANO), FAILED, "is the source itself")
        self.expect_error(run("quantize", self.folder / "no", out), FAILED, "not found", "no")
        self.expect_error(run("quantize", NANO, out, "--modules", "heads"), FAILED, '"heads" fits no')
        self.expect_error(run("quantize", NANO, out, "--max-memory", "1MiB"), FAILED, "needs", "MiB")
        for words in (
            ["--max-memory", "0"], ["--max-memory", "4GiBs"], ["--max-memory", "-1"],
            ["--max-memory", "99999999999GiB"], ["--layout", "gguf"], ["--rounding", "up"],
            ["--threads", "x"],
        ):
            with self.subTest(words=words):
                self.expect_error(run("quantize", NANO, out, *words), BAD_USAGE, words[0])
        for device in ("cuda", "gpu"):
            result = run("quantize", NANO, out, "--device", device)
            self.expect_error(result, BAD_USAGE, "--device", "on the host", "cpu or reference")
        self.expect_error(run("quantize", NANO, out, "--max-memory", "4"), FAILED, "4 bytes", "MiB")
        self.expect_error(run("quantize", NANO), BAD_USAGE, "OUT")
        self.assertFalse(out.exists())

    def test_figures_compare_files_with_files(self):
        once, twice = self.out("once"), self.out("twice")
        self.expect_done(run("quantize", NANO, once))
        result = run("quantize", once, twice)  # nothing is left to do
        self.expect_done(result)
        files = [(out / "model.safetensors").read_bytes() for out in (once, twice)]
        self.assertEqual(*map(len, files))
        line = result.stderr.decode().splitlines()[-1]
        self.assertRegex(line, r"^([\d.]+ MB) to \1 in [\d.]+ s")

    def test_interrupted_then_resumed(self):
        whole = self.out("whole")
        self.expect_done(run("quantize", NANO, whole))
        for sent in (signal.SIGINT, signal.SIGKILL):
            out = self.out(f"out{sent}")
            process = subprocess.Popen(
                [PROGRAM, "quantize", NANO, out, "--device", "reference"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            while process.poll() is None and not (out / ".dsv4-quantize.json").exists():
                time.sleep(0.001)
            process.send_signal(sent)
            stderr = process.communicate()[1].decode()
            if process.returncode != DONE:  # it may have been faster
                self.assertFalse((out / "config.json").exists())
                if sent == signal.SIGINT:
                    self.assertIn("--resume", stderr)
                self.expect_error(run("quantize", NANO, out), FAILED, "--resume")
                self.expect_done(run("quantize", NANO, out, "--resume"))
            for path in whole.iterdir():
                self.assertEqual((out / path.name).read_bytes(), path.read_bytes(), path.name)
            self.expect_error(run("quantize", NANO, out, "--resume"), FAILED, "finished")

    def test_resumed_after_the_conversion(self):
        """What --resume finds done is no work of its own: its last line gives no rate for it."""
        out, text = self.out(), self.folder / "text.txt"
        text.write_bytes((NANO / "held_out.txt").read_bytes()[:12000])
        words = ("quantize", NANO, out, "--text", text)
        process = subprocess.Popen(
            [PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and not (out / "config.json").exists():
            time.sleep(0.001)
        process.kill()  # while it measures the result
        process.wait()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        result = run(*words, "--resume")
        self.expect_done(result)
        self.assertRegex(
            result.stderr.decode().splitlines()[-1],
            r"^[\d.]+ MB to [\d.]+ MB in [\d.]+ s; 0 B were left to do$",
        )


if __name__ == "__main__":
    main()
