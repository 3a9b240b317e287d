#!/usr/bin/env python3
"""Tests of the program dsv4 from outside: exit codes, messages, and what goes to which stream.

    cli_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import os
import signal
import subprocess

from cli_testing import (
    BAD_USAGE,
    DONE,
    EOS,
    FAILED,
    INTERRUPTED,
    NANO,
    PROGRAM,
    TIMEOUT_S,
    CliTest,
    load_tests,
    main,
    run,
)

COMMANDS = [
    "chat",
    "completion",
    "devices",
    "eval",
    "generate",
    "inspect",
    "parse",
    "perplexity",
    "prompt",
    "tokenize",
    "verify",
]
GREEDY = ["--chat", "--temperature", "0", "--activations", "a16"]


def greedy_cases():
    return json.loads((NANO / "greedy.json").read_text(encoding="utf-8"))


class Usage(CliTest):
    def test_help_has_examples_and_goes_to_stdout(self):
        for command in [[], *([c] for c in COMMANDS)]:
            result = run(*command, "--help")
            self.assertIn("dsv4 " + (command[0] if command else "generate"), self.expect_done(result))
            self.assertIn("Examples:", result.stdout.decode())
            for line in result.stdout.decode().splitlines():
                self.assertLessEqual(len(line), 100)
            self.assertNotIn("TEXT:", result.stdout.decode())
            self.assertEqual(result.stderr, b"")

    def test_version(self):
        self.assertRegex(self.expect_done(run("--version")), r"^dsv4 \d+\.\d+\.\d+\n$")

    def test_bad_usage_is_2(self):
        bad = [
            ([], "subcommand"),
            (["frobnicate"], "frobnicate"),
            (["--frobnicate"], "--frobnicate"),
            (["generate", NANO, "-p", "x", "extra"], "extra"),
            (["generate", NANO, "-p", "x", "--chat", "--no-bos"], "--no-bos"),
            (["generate"], "MODEL"),
            (["generate", NANO, "-p", "x", "--no-such-option"], "--no-such-option"),
            (["inspect", NANO, "--one", "two", "--three"], "--one two --three"),
            (["generate", NANO, "-p", "x", "--prompt-file", "y"], "--prompt-file"),
            (["generate", NANO, "-p", "x", "--think"], "--think"),
            (["generate", NANO, "-p", "x", "--chat", "--ids"], "--ids"),
            (["generate", NANO, "-p", "x", "--max-tokens", "-1"], "--max-tokens"),
            (["generate", NANO, "-p", "x", "--max-tokens", "many"], "--max-tokens"),
            (["generate", NANO, "-p", "x", "-n", "0x3"], "no whole number"),
            (["generate", NANO, "-p", "x", "-n", "9" * 20], "no whole number"),
            (["generate", NANO, "-p", "x", "--top-k", "1'000"], "no whole number"),
            (["generate", NANO, "-p", "x", "--seed", "-1"], "--seed"),
            (["generate", NANO, "-p", "x", "--seed", str(2**64)], "--seed"),
            (["generate", NANO, "-p", "x", "--top-k", str(2**31)], "--top-k"),
            (["generate", NANO, "-p", "x", "--temperature", "1e999"], "temperature"),
            (["generate", NANO, "-p", "x", "--temperature", "-1"], "temperature"),
            (["generate", NANO, "-p", "x", "--temperature", "nan"], "temperature"),
            (["generate", NANO, "-p", "x", "--top-p", "0"], "top_p"),
            (["generate", NANO, "-p", "x", "--top-k", "-1"], "--top-k"),
            (["generate", NANO, "-p", "x", "--threads", "-1"], "--threads"),
            (["generate", NANO, "-p", "x", "--threads", "4097"], "--threads"),
            (["generate", NANO, "-p", "x", "--activations", "a5"], "--activations"),
            (["generate", NANO, "-p", "x", "--rows", "exact", "--kv", "fp8"], "--kv"),
            (["perplexity", NANO], "FILE"),
            (["perplexity", NANO, "x", "--window", "1"], "--window"),
            (["tokenize", NANO, "--text", "x", "--file", "y"], "--file"),
        ]
        for arguments, part in bad:
            with self.subTest(arguments=arguments):
                self.expect_error(run(*arguments), BAD_USAGE, part, "--help")

    def test_terminal_is_not_read_as_a_prompt(self):
        leader, terminal = os.openpty()
        try:
            result = subprocess.run(
                [PROGRAM, "generate", str(NANO)],
                stdin=terminal,
                capture_output=True,
                timeout=TIMEOUT_S,
            )
        finally:
            os.close(leader)
            os.close(terminal)
        self.expect_error(result, BAD_USAGE, "-p TEXT", "--prompt-file")

    def test_unknown_device_names_those_of_the_build(self):
        result = run("generate", NANO, "-p", "x", "--device", "abacus")
        self.expect_error(result, BAD_USAGE, "--device", "abacus", "reference", "cuda:N")
        for name in ("", "gpu", "cuda:", "cuda:x", "cuda0", "cpu:0"):
            with self.subTest(name=name):
                result = run("generate", NANO, "-p", "x", "--device", name)
                self.expect_error(result, BAD_USAGE, "--device", "dsv4 devices")

    def test_numbers_that_are_none(self):
        for option in ("--temperature", "--top-p", "--min-p"):
            for value in ("abc", "", "0.5x"):
                result = run("generate", NANO, "-p", "x", option, value)
                self.expect_error(result, BAD_USAGE, option, f'"{value}" is no number')

    def test_help_is_a_command(self):
        self.assertEqual(self.expect_done(run("help")), self.expect_done(run("--help")))


class Devices(CliTest):
    def test_each_is_described_or_says_what_is_missing(self):
        devices = json.loads(self.expect_done(run("devices", "--json")))["devices"]
        self.assertEqual([d["name"] for d in devices[:2]], ["reference", "cpu"])
        self.assertTrue(devices[2]["name"].startswith("cuda"))
        lines = self.expect_done(run("devices")).splitlines()
        self.assertEqual(len(lines), len(devices))
        for line, device in zip(lines, devices):
            self.assertTrue(line.startswith(device["name"] + " "))
            self.assertTrue(line.endswith(device["description"]))
            self.assertEqual("not usable: " in line, not device["usable"])

    def test_a_device_that_is_not_usable_is_refused_with_the_same_reason(self):
        for device in json.loads(self.expect_done(run("devices", "--json")))["devices"]:
            if not device["usable"]:
                result = run("generate", NANO, "-p", "x", "--device", device["name"])
                self.expect_error(result, FAILED, "unsupported device", device["description"])


class Generate(CliTest):
    def test_answers_the_recorded_text(self):
        case = greedy_cases()[0]
        question = case["prompt"].split("<｜User｜>")[1].split("<｜Assistant｜>")[0]
        result = run("generate", NANO, *GREEDY, "-p", question)
        self.assertEqual(self.expect_done(result), case["text"].replace(EOS, "") + "\n")
        self.assertIn("tokens/s", result.stderr.decode())

    def test_prompt_by_argument_file_and_stdin_is_the_same(self):
        text = "The cook carried"
        options = ["--seed", "3", "-n", "6"]
        want = self.expect_done(run("generate", NANO, *options, "-p", text))
        path = self.write("prompt.txt", text + "\n")
        for result in (
            run("generate", NANO, *options, "--prompt-file", path),
            run("generate", NANO, *options, "--prompt-file", "-", stdin=text),
            run("generate", NANO, *options, stdin=text + "\n"),
        ):
            self.assertEqual(self.expect_done(result), want)

    def test_numbers_are_decimal(self):
        result = run("generate", NANO, "--json", "--temperature", "0", "-n", "010", "-p", "The")
        self.assertEqual(len(json.loads(self.expect_done(result))["token_ids"]), 10)

    def test_json_is_one_object_and_agrees_with_the_text(self):
        case = greedy_cases()[1]
        # A whole prompt with its marks, without a second begin mark.
        result = run("generate", NANO, *GREEDY[1:], "--json", "-p", case["prompt"])
        reply = json.loads(self.expect_done(result))
        self.assertEqual(reply["prompt_token_ids"], case["prompt_ids"])
        self.assertEqual(reply["token_ids"], case["greedy_ids"])
        self.assertEqual(reply["text"] + EOS, case["text"])
        self.assertEqual(reply["finish_reason"], "stop")
        timings = reply["timings"]
        self.assertEqual(timings["prompt_tokens"], len(case["prompt_ids"]))
        self.assertEqual(timings["generated_tokens"], len(case["greedy_ids"]))

    def test_ids_in_and_out_need_no_text(self):
        case = greedy_cases()[2]
        ids = " ".join(map(str, case["prompt_ids"]))
        result = run("generate", NANO, *GREEDY[1:], "--ids", stdin=ids)
        self.assertEqual(self.expect_done(result).split(), list(map(str, case["greedy_ids"])))

    def test_begin_mark_is_there_unless_unwanted(self):
        def prompt_ids(*arguments):
            result = run("generate", NANO, "-n", "0", "--json", *arguments)
            return json.loads(self.expect_done(result))["prompt_token_ids"]

        self.assertEqual(prompt_ids("-p", ""), [0])
        with_mark = prompt_ids("-p", "Hello")
        self.assertEqual(with_mark[0], 0)
        self.assertEqual(prompt_ids("-p", "Hello", "--no-bos"), with_mark[1:])

    def test_token_limits(self):
        for count in (0, 1, 2):
            result = run("generate", NANO, "-p", "The", "--json", "--seed", "1", "-n", count)
            reply = json.loads(self.expect_done(result))
            self.assertEqual(len(reply["token_ids"]), count)
            self.assertEqual(reply["finish_reason"], "length")

    def test_seed_repeats_and_is_printed_when_not_given(self):
        command = ["generate", NANO, "-p", "The", "-n", "12"]
        first = run(*command)
        seed = first.stderr.decode().split("--seed ")[1].split()[0]
        self.assertEqual(self.expect_done(run(*command, "--seed", seed)), self.expect_done(first))

    def test_the_text_does_not_depend_on_the_number_of_threads(self):
        command = ["generate", NANO, "-p", "The", "-n", "12", "--seed", "1"]
        texts = {self.expect_done(run(*command, "--threads", n)) for n in (0, 1, 3)}
        self.assertEqual(len(texts), 1)

    def test_exact_rows_take_f32_by_default(self):
        options = ["-p", "The", "-n", "2", "--rows", "exact", "--seed", "1"]
        want = self.expect_done(run("generate", NANO, *options))
        self.assertEqual(self.expect_done(run("generate", NANO, *options, "--kv", "f32")), want)

    def test_empty_prompt_without_begin_mark(self):
        self.expect_error(run("generate", NANO, "--no-bos", "-p", ""), FAILED, "prompt", "empty")

    def test_prompt_longer_than_the_model_takes(self):
        path = self.write("long.txt", "word " * 5000)
        self.expect_error(
            run("generate", NANO, "--prompt-file", path), FAILED, "4096", "tokens"
        )

    def test_nul_and_invalid_utf8(self):
        for text in (b"The\0cook", b"\xff\xfe\x80", b"\xe4\xb8", b"\0"):
            with self.subTest(text=text):
                result = run("generate", NANO, "-n", "3", "--json", "--seed", "1", stdin=text)
                json.loads(self.expect_done(result))

    def test_invalid_utf8_is_noted_wherever_text_comes_from(self):
        note = "is not valid UTF-8; invalid bytes are read as U+FFFD"
        result = run("generate", NANO, "-n", "1", stdin=b"a\xff")
        self.assertIn(f"note: the prompt {note}\n", result.stderr.decode())
        bad = [b"--chat", b"--system", b"a\xff", b"-p", b"hi"]
        command = [os.fsencode(PROGRAM), b"generate", os.fsencode(NANO), b"-n", b"1", b"--json", *bad]
        result = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
        ids = json.loads(self.expect_done(result))["prompt_token_ids"]
        self.assertIn(f"note: the system message {note}\n", result.stderr.decode())
        command[command.index(b"a\xff")] = "a\ufffd".encode()
        result = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(json.loads(self.expect_done(result))["prompt_token_ids"], ids)
        self.assertNotIn("UTF-8", result.stderr.decode())

    def test_marks_are_tokens_in_a_plain_prompt_and_refused_in_a_message(self):
        self.expect_done(run("generate", NANO, "-n", "1", "-p", "a <think>"))
        command = ["generate", NANO, "-n", "1", "--chat"]
        for arguments in (["-p", "a <think>"], ["-p", "a", "--system", "<think>"]):
            self.expect_error(run(*command, *arguments), FAILED, "<think>", "message")

    def test_bad_ids_and_files(self):
        command = ["generate", NANO, "-n", "1"]
        self.expect_error(run(*command, "--ids", "-p", "1 two"), FAILED, "two")
        self.expect_error(run(*command, "--ids", "-p", "-1"), FAILED, "-1")
        self.expect_error(run(*command, "--ids", "-p", "[]"), FAILED, "no token ids")
        self.expect_error(run(*command, "--ids", "-p", "99999999999"), FAILED, "99999999999")
        self.expect_error(run(*command, "--ids", "-p", "2048"), FAILED, "2048")
        self.expect_error(run(*command, "--prompt-file", self.folder / "none"), FAILED, "none")
        self.expect_error(run(*command, "--prompt-file", self.folder), FAILED, str(self.folder))

    def test_output_is_streamed_as_whole_characters(self):
        # Random draws of byte tokens: many are parts of characters.
        command = [PROGRAM, "generate", str(NANO), "-p", "é", "-n", "40", "--temperature", "9", "--seed", "2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            while piece := os.read(process.stdout.fileno(), 65536):
                piece.decode("utf-8")
            self.assertEqual(process.wait(), DONE)


class Endings(CliTest):
    STORY = ["generate", "--chat", "--seed", "1", "-p", "Tell me a story about a fox."]

    def command(self, *more):
        return [PROGRAM, self.STORY[0], str(NANO), *self.STORY[1:], *more]

    def test_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            for command in (self.command(), [PROGRAM, "inspect", str(NANO)], [PROGRAM, "--help"]):
                result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_S)
                self.assertEqual(result.returncode, FAILED)
                self.assertIn(b"standard output", result.stderr)
                self.assertEqual(result.stderr.count(b"\n"), 1)

    def test_closed_stdout_is_an_error(self):
        for command in (self.command(), [PROGRAM, "--help"]):
            result = subprocess.run(
                ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, timeout=TIMEOUT_S
            )
            self.assertEqual(result.returncode, FAILED)
            self.assertEqual(result.stderr, b"dsv4: cannot write to standard output: it is closed\n")

    def test_reader_that_goes_away_is_quiet(self):
        with subprocess.Popen(
            self.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            process.stdout.read(1)
            process.stdout.close()
            self.assertEqual((process.stderr.read(), process.wait()), (b"", FAILED))

    def test_interrupt_ends_with_a_line_and_figures(self):
        with subprocess.Popen(
            self.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            first = process.stdout.read(1)
            process.send_signal(signal.SIGINT)
            text = first + process.stdout.read()
            self.assertTrue(text.endswith(b"\n"))
            self.assertIn(b"interrupted", process.stderr.read())
            self.assertEqual(process.wait(), INTERRUPTED)

    def test_closed_stdin_is_an_error(self):
        result = subprocess.run(
            ["sh", "-c", '"$@" <&-', "sh", PROGRAM, "tokenize", str(NANO)],
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        self.expect_error(result, FAILED, "standard input")


class Tokenize(CliTest):
    TEXTS = ["", "\n", " a  b\n\n", "Grüße, 世界 🦊\n", "<｜User｜>hi<think>\0\r\n", "x" * 3000]

    def test_round_trip_is_exact(self):
        for text in self.TEXTS:
            with self.subTest(text=text[:20]):
                ids = self.expect_done(run("tokenize", NANO, stdin=text))
                self.assertRegex(ids, r"^(\d+( \d+)*)?\n$")
                self.assertEqual(self.expect_done(run("tokenize", NANO, "--ids", stdin=ids)), text)

    def test_recorded_ids(self):
        case = greedy_cases()[4]
        path = self.write("prompt.txt", case["prompt"])
        ids = self.expect_done(run("tokenize", NANO, "--file", path))
        self.assertEqual(list(map(int, ids.split())), case["prompt_ids"])

    def test_json(self):
        reply = json.loads(self.expect_done(run("tokenize", NANO, "--json", "--text", "two words")))
        self.assertEqual("".join(reply["tokens"]), "two words")
        back = run("tokenize", NANO, "--ids", "--json", stdin=json.dumps(reply["ids"]))
        self.assertEqual(json.loads(self.expect_done(back)), {"text": "two words"})

    def test_id_that_is_no_token(self):
        self.expect_error(run("tokenize", NANO, "--ids", stdin="5 123456"), FAILED, "123456")


if __name__ == "__main__":
    main()
