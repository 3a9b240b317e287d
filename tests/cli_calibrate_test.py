#!/usr/bin/env python3
"""Tests of what dsv4 quantize measures beside quantising: --calibrate, --evaluate, --text.

    cli_calibrate_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import subprocess
import time

from cli_testing import BAD_USAGE, FAILED, NANO, PROGRAM, CliTest, load_tests, main, run


class Measures(CliTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"
        # 1,070 tokens: one window of perplexity, and tokens for every expert.
        self.text = self.write("text", (NANO / "held_out.txt").read_bytes()[:4700])

    def report(self):
        return json.loads((self.out / "quantization_report.json").read_text())

    def questions(self, count):
        """Of two kinds, `count` of each."""
        lines = (NANO / "questions.jsonl").read_text().splitlines(keepends=True)
        chosen = [[line for line in lines if json.loads(line)["kind"] == kind][:count]
                  for kind in ("fact", "sum")]
        return self.write("questions", "".join(sum(chosen, [])))

    def perplexity(self, model, activations):
        result = run("perplexity", model, self.text, "--activations", activations, "--json")
        return json.loads(self.expect_done(result))["perplexity"], result.stderr.decode()

    def test_a_calibrated_model_runs_in_a4_with_static_scales(self):
        measures = ["--calibrate", self.text, "--text", self.text]
        text = self.expect_done(run("quantize", NANO, self.out, *measures))
        self.assertNotIn("note: ", text)
        self.assertIn("source a16    result a16  result a4 static\n", text)
        report = self.report()
        self.assertGreater(report["calibration"]["tokens"], 1050)
        self.assertEqual(report["calibration"]["filled"], [])
        runs = report["evaluation"]["runs"]
        self.assertEqual([(r["model"], r["activations"]) for r in runs],
                         [("source", "a16"), ("result", "a16"), ("result", "a4")])
        exact, cast, static = (r["perplexity"] for r in runs)
        self.assertEqual(exact, self.perplexity(NANO, "a16")[0])
        self.assertEqual(cast, exact)  # a cast loses nothing
        again, stderr = self.perplexity(self.out, "a4")
        self.assertEqual(static, again)
        self.assertNotIn("dynamic", stderr)
        plain = self.folder / "plain"
        self.expect_done(run("quantize", NANO, plain))
        dynamic, stderr = self.perplexity(plain, "a4")
        self.assertIn("dynamic", stderr)
        self.assertNotEqual(static, dynamic)
        # Scales a tenth as large give 6 times the perplexity; larger ones cost next to nothing,
        # because the block scales follow them.
        self.assertLess(static, 1.01 * exact)
        self.assertLess(dynamic, 1.01 * exact)

    def test_experts_that_one_token_does_not_reach_are_listed(self):
        text = self.expect_done(
            run("quantize", NANO, self.out, "--calibrate", self.write("one", "Near"))
        )
        self.assertIn("note: 56 of 96 input scales are not their expert's own", text)
        report = self.report()
        self.assertEqual(len(report["calibration"]["filled"]), 56)
        self.assertEqual(report["calibration"]["tokens"], 1)
        reply = run("generate", self.out, "-p", "Near", "--max-tokens", "2", "--activations", "a4")
        self.expect_done(reply)

    def test_answers_before_and_after_stand_in_table_and_report(self):
        questions = self.questions(2)
        text = self.expect_done(run("quantize", NANO, self.out, "--evaluate", questions))
        self.assertIn("source a16    result a16  result a4 dynamic\n", text)
        for one in self.report()["evaluation"]["runs"]:
            self.assertNotIn("perplexity", one)
            model = NANO if one["model"] == "source" else self.out
            reply = run("eval", model, "--questions", questions, "--json",
                        "--activations", one["activations"])
            answers = json.loads(self.expect_done(reply))
            self.assertEqual(one["kinds"], answers["kinds"])
            self.assertEqual((one["correct"], one["total"]), (answers["correct"], answers["total"]))

    def test_json_has_everything(self):
        few = self.write("few", "Near the quarry")
        words = ["--calibrate", few, "--evaluate", self.questions(1), "--json"]
        report = json.loads(self.expect_done(run("quantize", NANO, self.out, *words)))
        self.assertEqual(report, self.report())
        self.assertGreater(report["calibration"]["tokens"], 1)
        runs = report["evaluation"]["runs"]
        self.assertEqual([r.get("scales") for r in runs], [None, None, "static"])

    def test_what_is_wrong_is_said_before_anything_is_written(self):
        missing = self.folder / "missing"
        short = self.write("short", "Near the quarry")
        for words, parts in (
            (["--calibrate", missing], ["missing"]),
            (["--text", self.text, "--calibrate", missing], ["missing"]),
            (["--calibrate", self.write("empty", "")], ["calibration text is empty"]),
            (["--calibrate", self.folder], ["is a directory"]),
            (["--calibrate", self.text, "--max-memory", "1MiB"], ["max-memory"]),
            (["--calibrate", self.text, "--modules", "heads"], ["fits no matrix"]),
            (["--text", self.text, "--plot", self.folder / "no" / "plot.svg"], ["no directory"]),
            (["--evaluate", missing], ["missing"]),
            (["--evaluate", short], ["short:1"]),
            (["--text", missing], ["missing"]),
            (["--text", short], ["window"]),
        ):
            with self.subTest(words=words):
                # One line: no bar of a calibration or evaluation came before it.
                self.expect_error(run("quantize", NANO, self.out, *words), FAILED, *parts)
                self.assertFalse(self.out.exists())
        self.expect_error(run("quantize", NANO, self.out, "--calibrate"), BAD_USAGE, "--calibrate")

    def test_killed_after_the_conversion_then_resumed(self):
        words = ["--calibrate", self.text, "--text", self.text]
        plots = [["--plot", self.folder / f"{name}.svg"] for name in ("whole", "out")]
        whole = self.folder / "whole"
        self.expect_done(run("quantize", NANO, whole, *words, *plots[0]))
        process = subprocess.Popen([PROGRAM, "quantize", NANO, self.out, *words, *plots[1]],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (self.out / "config.json").exists():
            time.sleep(0.001)
        process.kill()
        process.communicate()
        self.assertTrue((self.out / ".dsv4-quantize.json").exists())
        result = run("quantize", NANO, self.out, *words, *plots[1], "--resume")
        text = self.expect_done(result)
        self.assertIn("perplexity", text)
        self.assertIn("scoring, result", result.stderr.decode())
        for work in ("calibrating", "scoring, source"):
            self.assertNotIn(work, result.stderr.decode())
        self.assertEqual(sorted(p.name for p in self.out.iterdir()),
                         sorted(p.name for p in whole.iterdir()))
        for path in whole.iterdir():
            self.assertEqual((self.out / path.name).read_bytes(), path.read_bytes(), path.name)
        self.assertEqual(plots[0][1].read_bytes(), plots[1][1].read_bytes())

    def test_another_calibration_is_named(self):
        options = ["--calibrate", self.text]
        process = subprocess.Popen(
            [PROGRAM, "quantize", NANO, self.out, *options, "--text", self.text],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (self.out / "config.json").exists():
            time.sleep(0.001)
        process.kill()
        process.communicate()
        other = self.write("other", self.text.read_bytes()[:-1])
        again = ["quantize", NANO, self.out, "--resume"]
        self.expect_error(run(*again, "--calibrate", other), FAILED, "--calibrate",
                          "a text of 4700 bytes", "a text of 4699 bytes")
        self.expect_error(run(*again, *options, "--device", "reference"), FAILED,
                          '--device "cpu"', '"reference"')
        self.expect_error(run(*again), FAILED, "--calibrate", '"none"')
        self.expect_done(run(*again, *options))

    def test_a_calibration_that_nothing_needs_is_refused(self):
        words = ["--modules", "attention", "--calibrate", self.write("one", "Near")]
        result = run("quantize", NANO, self.out, *words)
        self.expect_error(result, FAILED, "no routed expert comes out in NVFP4")
        self.assertFalse(self.out.exists())

    def test_without_a_tokenizer_there_is_no_calibration(self):
        model = self.copy_of_nano(without=["tokenizer.json"])
        result = run("quantize", model, self.out, "--calibrate", self.text)
        self.expect_error(result, FAILED, "tokenizer.json")
        self.expect_done(run("quantize", model, self.out))


if __name__ == "__main__":
    main()
