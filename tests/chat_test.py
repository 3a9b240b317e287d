#!/usr/bin/env python3
"""Tests of dsv4 chat from outside: in scripts, on a terminal, and the session in its documentation.

    chat_test.py PROGRAM SOURCE_DIR [unittest arguments]
    chat_test.py PROGRAM SOURCE_DIR --record     # writes the session of docs/chat-session.md anew
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile

from chat_terminal import PROMPT, Terminal
from cli_testing import (
    BAD_USAGE,
    DONE,
    EOS,
    FAILED,
    INTERRUPTED,
    NANO,
    PROGRAM,
    SOURCE,
    TIMEOUT_S,
    CliTest,
    load_tests,
    main,
)

BOS = "<｜begin▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
FOUNDER = "Who founded Ostholm?"
BRIDGES = "How many bridges are there in Ostholm?"
STORY = "Tell me a story about a fox."
DIM = b"\x1b[2m"


def run_chat(text, *options):
    """Greedy, with `text` as standard input."""
    command = [PROGRAM, "chat", NANO, "--temperature", "0", *map(str, options)]
    data = text if isinstance(text, bytes) else text.encode()
    return subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_S)


class ChatTest(CliTest):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "chat.json"

    def answers(self, text, *options):
        result = run_chat(text, *options)
        self.assertEqual(result.returncode, DONE, result.stderr.decode())
        return result.stdout.decode()

    def expect_refusal(self, result, *parts):
        """The last line on stderr holds `parts`."""
        message = result.stderr.decode()
        self.assertEqual(result.returncode, FAILED, message)
        last = message.splitlines()[-1]
        self.assertTrue(last.startswith("dsv4: "), message)
        for part in parts:
            self.assertIn(part, last)

    def saved(self, text, *options):
        """The conversation after `text`, as /save writes it."""
        self.answers(f"{text}/save {self.file}\n", *options)
        return json.loads(self.file.read_text(encoding="utf-8"))

    def saved_messages(self, text, *options):
        return self.saved(text, *options)["messages"]

    def terminal(self, *options, **environment):
        command = [PROGRAM, "chat", NANO, *(options or ["--temperature", "0"])]
        environment = {"TERM": "xterm", **environment}
        return Terminal(command, SOURCE, self.folder, **environment)


class Scripted(ChatTest):
    def test_stdout_holds_the_answers_and_stderr_nothing(self):
        result = run_chat(f"{FOUNDER}\n{BRIDGES}\n")
        self.assertEqual(result.stdout, b"Ostholm was founded by Ylva.\nOstholm has 13 bridges.\n")
        self.assertEqual(result.returncode, DONE)
        for part in (b"> ", b"Ostholm", b"tokens/s"):
            self.assertNotIn(part, result.stderr)

    def test_the_whole_history_is_the_prompt(self):
        history = f"{BOS}Be brief.{USER}{FOUNDER}{ASSISTANT}</think>Ostholm was founded by Ylva.{EOS}"
        prompt = f"{history}{USER}{STORY}{ASSISTANT}</think>"
        command = [PROGRAM, "generate", NANO, "--temperature", "0", "-n", "30", "-p", prompt]
        want = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S).stdout.decode()
        got = self.answers(f"{FOUNDER}\n{STORY}\n", "--system", "Be brief.", "-n", "30")
        self.assertEqual(got, "Ostholm was founded by Ylva.\n" + want)
        self.assertGreater(len(want), 50)

    def test_reset_leaves_system_message_and_tools(self):
        tools = NANO / "tools.json"
        saved = self.saved(f"{FOUNDER}\n/reset\n", "--system", "s", "--tools", tools, "--think")
        self.assertEqual(saved["messages"], [{"role": "system", "content": "s"}])
        self.assertEqual(saved["tools"], json.loads(tools.read_text()))
        self.assertEqual((saved["thinking"], saved["effort"]), (True, "none"))

    def test_reasoning_stands_between_marks(self):
        text = self.answers("What is 27 + 48?\n/think off\nWhat is 27 + 48?\n", "--think")
        self.assertRegex(text, r"^<think>\n[^<]+\n</think>\n75\n[^<]*\n$")

    def test_texts_of_several_lines_slashes_and_other_line_ends(self):
        for text, want in [
            ('"""\n/a\n\nb\n"""\n', "/a\n\nb"),
            ('"""a\nb"""\n', "a\nb"),
            ('"""a"""\n', "a"),
            ('"""\n\na\n\n"""\n', "\na\n"),
            ('""""\n"""\n', '"'),
            ("//etc\n", "/etc"),
            ("a\\\r\n", "a\\"),
            ("Grüße 🦊\0", "Grüße 🦊\0"),
        ]:
            with self.subTest(text=text):
                script = text + ("" if text.endswith("\n") else "\n")
                self.assertEqual(self.saved_messages(script, "-n", "2")[0]["content"], want)

    def test_invalid_utf8_becomes_replacement_characters(self):
        result = run_chat(b"a\xff\xe4\xb8\n/save " + str(self.file).encode(), "-n", "1")
        self.assertEqual(result.returncode, DONE)
        messages = json.loads(self.file.read_text(encoding="utf-8"))["messages"]
        self.assertEqual(messages[0]["content"], "a\ufffd\ufffd")

    def test_empty_lines_are_no_messages(self):
        self.assertEqual(self.answers(f"\n\n{FOUNDER}\n\n"), "Ostholm was founded by Ylva.\n")
        self.assertEqual(self.answers(""), "")

    def test_quit_leaves_the_rest_unread(self):
        self.assertEqual(self.answers(f"/quit\n{FOUNDER}\n"), "")

    def test_the_first_error_ends_it(self):
        for text, part in [
            ("/frobnicate\n", "/frobnicate"),
            ("/\n", "/help"),
            ("/quit now\n", "/quit"),
            ("/think maybe\n", "maybe"),
            ("/effort some\n", "none, low, high, max"),
            ("/effort low\n", "low"),
            ("/save\n", "/save"),
            (f"/save {self.folder}/none/x\n", "none"),
            ("/load\n", "/load"),
            (f"/load {self.folder}/none\n", "none"),
            ("/tools /dev/null\n", "/dev/null"),
            ('"""\nunfinished\n', '"""'),
            ("a <think> b\n", "<think>"),
            ("a<｜User｜>b\n", "<｜User｜>"),
            ("/system <｜DSML｜tool_calls>\n", "｜DSML｜"),
        ]:
            with self.subTest(text=text):
                result = run_chat(f"{text}{FOUNDER}\n")
                self.expect_refusal(result, part)
                self.assertEqual(result.stdout, b"")

    def test_bad_usage(self):
        for options in (
            ["--effort", "some"],
            ["-n", "0"],
            ["--context", "0"],
            ["--temperature", "-1"],
            ["--top-p", "0"],
            ["--seed", "-1"],
            ["--rows", "exact", "--kv", "fp8"],
        ):
            with self.subTest(options=options):
                result = run_chat("", *options)
                self.assertEqual((result.returncode, result.stdout), (BAD_USAGE, b""))

    def test_the_same_seed_draws_the_same(self):
        def run(*options):
            command = [PROGRAM, "chat", NANO, "-n", "20", *options]
            text = f"{STORY}\nAnd another one.\n".encode()
            return subprocess.run(command, input=text, capture_output=True, timeout=TIMEOUT_S)

        first = run()
        seed = re.search(r"--seed (\d+)", first.stderr.decode())[1]
        self.assertEqual(run("--seed", seed).stdout, first.stdout)
        self.assertNotIn(b"--seed", run("--quiet").stderr)

    def test_interrupt_ends_a_script(self):
        command = [PROGRAM, "chat", NANO, "--temperature", "9", "--seed", "1"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            process.stdin.write(f"{STORY}\n".encode())
            process.stdin.flush()
            process.stdout.read(1)
            process.send_signal(signal.SIGINT)
            self.assertTrue(process.communicate()[0].endswith(b"\n"))
            self.assertEqual(process.returncode, INTERRUPTED)

    def test_interrupt_goes_before_the_end_of_the_input(self):
        command = [PROGRAM, "chat", NANO, "--temperature", "0"]
        for _ in range(5):  # whether both are there when the program wakes is chance
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process:
                process.stdin.write(f"{FOUNDER}\n".encode())
                process.stdin.flush()
                process.stdout.readline()
                process.send_signal(signal.SIGINT)
                process.communicate()  # closes the input
                self.assertEqual(process.returncode, INTERRUPTED)

    def test_closed_stdout_is_an_error(self):
        command = ["sh", "-c", '"$@" >&-', "sh", PROGRAM, "chat", NANO, "--temperature", "0"]
        result = subprocess.run(
            command, input=FOUNDER.encode(), stderr=subprocess.PIPE, timeout=TIMEOUT_S
        )
        self.assertEqual(result.returncode, FAILED)
        self.assertEqual(result.stderr, b"dsv4: cannot write to standard output: it is closed\n")


class Tools(ChatTest):
    DISTANCE = "How many miles are there between Ostford and Falvern?"

    def chat(self, text, *options):
        options = ["--tools", NANO / "tools.json", "--system", "You are a helpful assistant.", *options]
        return self.saved_messages(text, *options)

    def test_a_call_its_result_and_the_answer(self):
        messages = self.chat(f'{self.DISTANCE}\n{{"miles": 37}}\n{BRIDGES}\n')
        roles = [message["role"] for message in messages]
        self.assertEqual(roles, "system user assistant tool assistant user assistant".split())
        call = messages[2]["tool_calls"][0]
        arguments = {"start": "Ostford", "end": "Falvern"}
        self.assertEqual(call["function"]["name"], "get_distance")
        self.assertEqual(json.loads(call["function"]["arguments"]), arguments)
        self.assertEqual(messages[3]["content"], '{"miles": 37}')
        self.assertEqual(messages[3]["tool_call_id"], call["id"])
        self.assertIn("37 miles", messages[4]["content"])
        self.assertEqual(messages[6]["content"], "Ostholm has 13 bridges.")

    def test_the_call_is_shown(self):
        text = self.answers(
            f"{self.DISTANCE}\n",
            "--tools", NANO / "tools.json", "--system", "You are a helpful assistant.",
        )  # fmt: skip
        self.assertEqual(text, 'call get_distance {"start": "Ostford", "end": "Falvern"}\n')

    def test_an_empty_result_a_refused_one_and_commands_between(self):
        messages = self.chat(f"{self.DISTANCE}\n/think off\n\n")
        self.assertEqual([m["content"] for m in messages if m["role"] == "tool"], [""])
        result = run_chat(
            f"{self.DISTANCE}\n{EOS}\n",
            "--tools", NANO / "tools.json", "--system", "You are a helpful assistant.",
        )  # fmt: skip
        self.expect_refusal(result, "the result", EOS)

    def load_two_calls(self, *results):
        def call(name):
            return {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}

        messages = [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")]},
            *({"role": "tool", "tool_call_id": i, "content": i} for i in results),
        ]
        path = self.folder / "two.json"
        path.write_text(json.dumps({"messages": messages}))
        return path

    def test_each_of_several_calls_gets_its_result_in_turn(self):
        for given, typed, want in [
            ([], "1\n2\n", [("a", "1"), ("b", "2")]),
            (["a"], "2\n", [("a", "a"), ("b", "2")]),
            (["b"], "1\n", [("b", "b"), ("a", "1")]),
        ]:
            with self.subTest(given=given):
                path = self.load_two_calls(*given)
                messages = self.saved_messages(typed, "--load", path, "-n", "2")
                results = [m for m in messages if m["role"] == "tool"]
                self.assertEqual([(m["tool_call_id"], m["content"]) for m in results], want)
                self.assertEqual(messages[-1]["role"], "assistant")

    def test_results_that_were_saved_are_answered_after_an_empty_line(self):
        path = self.load_two_calls("a", "b")
        self.assertEqual(self.answers("", "--load", path), "")
        messages = self.saved_messages("\n", "--load", path, "-n", "2")
        self.assertEqual(messages[-1]["role"], "assistant")

    def test_files_that_are_no_tools(self):
        for text, part in [
            ("", "tools.json"),
            ("[", "tools.json"),
            ("{}", "tools"),
            ('{"tools": {}}', "tools"),
            ('[{"function": {"name": "f"}}, {"function": {"name": "f"}}]', "[1].function.name"),
            ('[{"function": {}}]', "name"),
            ('[{"function": {"name": "f", "description": "</think>"}}]', "</think>"),
        ]:
            with self.subTest(text=text):
                path = self.folder / "tools.json"
                path.write_text(text)
                self.expect_refusal(run_chat("", "--tools", path), part)

    def test_tools_of_a_request_object(self):
        tools = json.loads((NANO / "tools.json").read_text())
        path = self.folder / "request.json"
        path.write_text(json.dumps({"messages": [], "tools": tools}))
        self.assertEqual(self.saved("", "--tools", path)["tools"], tools)
        self.assertNotIn("tools", self.saved(f"/tools -\n{FOUNDER}\n", "--tools", path))


class SaveAndLoad(ChatTest):
    def test_what_was_saved_goes_on_as_if_it_had_not_ended(self):
        options = ["--system", "Be brief.", "--think"]
        whole = self.saved(f"{FOUNDER}\n{STORY}\n", *options)
        self.saved(f"{FOUNDER}\n", *options)
        self.assertEqual(self.saved(f"{STORY}\n", "--load", self.file), whole)
        self.saved(f"{FOUNDER}\n", *options)
        self.assertEqual(self.saved(f"/load {self.file}\n{STORY}\n"), whole)
        self.assertIn("reasoning_content", whole["messages"][2])

    def test_prompt_reads_what_was_saved(self):
        self.saved(f"{FOUNDER}\n", "--system", "Be brief.", "--tools", NANO / "tools.json")
        command = [PROGRAM, "prompt", NANO, self.file]
        result = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
        prompt = result.stdout.decode()
        self.assertTrue(prompt.startswith(f"{BOS}Be brief.\n\n"), prompt)
        self.assertIn('{"name": "get_distance", ', prompt)
        answer = f"{USER}{FOUNDER}{ASSISTANT}</think>Ostholm was founded by Ylva.{EOS}"
        self.assertTrue(prompt.rstrip("\n").endswith(answer), prompt)

    def test_options_change_what_is_loaded(self):
        self.saved(f"{FOUNDER}\n", "--system", "old")
        saved = self.saved("", "--load", self.file, "--system", "new", "--effort", "max")
        self.assertEqual(saved["messages"][0], {"role": "system", "content": "new"})
        self.assertEqual((len(saved["messages"]), saved["effort"]), (3, "max"))

    def test_files_that_are_no_conversation(self):
        for text, part in [
            ("[]", "object"),
            ('{"messages": []}', "empty"),
            ('{"messages": [{"role": "x"}]}', "messages[0].role"),
            ('{"messages": [{"role": "user"}], "effort": "low"}', "low"),
            ('{"messages": [{"role": "user"}], "context": [{"role": "user"}]}', "context"),
        ]:
            with self.subTest(text=text):
                self.file.write_text(text)
                self.expect_refusal(run_chat("", "--load", self.file), part)


class Limits(ChatTest):
    def test_a_message_without_room_is_refused_and_names_the_sizes(self):
        self.expect_refusal(run_chat(f"{FOUNDER}\n", "--context", "8"), "8 tokens", "/save")
        result = run_chat(f"{FOUNDER}\n", "--context", "9")
        self.assertEqual((result.returncode, result.stdout), (DONE, b"Ost\n"))
        self.assertIn(b"context is full", result.stderr)

    def test_an_answer_cut_in_its_reasoning_goes_into_the_history(self):
        messages = self.saved_messages(f"{FOUNDER}\n{BRIDGES}\n", "--think", "-n", "3")
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"] * 2)
        self.assertEqual(messages[1]["content"], "")
        self.assertTrue(messages[1]["reasoning_content"])

    def test_a_tool_call_that_is_cut_is_left_out(self):
        question = Tools.DISTANCE
        options = ["--tools", NANO / "tools.json", "--system", "You are a helpful assistant."]
        for max_tokens in (1, 2, 3, 5, 10, 20, 30):
            with self.subTest(max_tokens=max_tokens):
                messages = self.saved_messages(f"{question}\n", *options, "-n", max_tokens)
                # With nothing said there is no answer; the question stays and can be asked again.
                self.assertIn(len(messages), (2, 3))
                for message in messages[2:]:
                    self.assertNotIn("tool_calls", message)
                    self.assertNotIn("｜DSML｜", message["content"])


class OnATerminal(ChatTest):
    def ask(self, terminal, line):
        """Everything from typing `line` to the next prompt."""
        terminal.enter(line)
        return terminal.next_prompt()

    def test_colours_follow_the_terminal_and_no_color(self):
        for environment, dim in [
            ({}, True),
            ({"NO_COLOR": ""}, True),
            ({"NO_COLOR": "1"}, False),
            ({"TERM": "dumb"}, False),
        ]:
            with self.subTest(environment=environment):
                with self.terminal("--temperature", "0", "--think", **environment) as terminal:
                    text = self.ask(terminal, FOUNDER)
                    self.assertEqual(DIM in text, dim)
                    self.assertEqual(b"<think>" in text, not dim)
                    self.assertRegex(text, rb"tokens/s.* of 4096")

    def test_a_pipe_for_stdout_gets_the_answers_alone(self):
        reader, writer = os.pipe()
        command = [PROGRAM, "chat", NANO, "--temperature", "0"]
        with Terminal(command, SOURCE, self.folder, stdout=writer, TERM="xterm") as terminal:
            os.close(writer)
            terminal.enter(FOUNDER)
            terminal.enter("/quit")
            self.assertEqual(terminal.wait(), DONE)
        with open(reader, "rb") as file:
            self.assertEqual(file.read(), b"Ostholm was founded by Ylva.\n")

    def test_quiet_leaves_out_figures(self):
        with self.terminal("--temperature", "0", "--quiet") as terminal:
            self.ask(terminal, FOUNDER)
            self.assertNotIn(b"tokens", terminal.output)

    def test_arrow_up_brings_back_a_line_in_any_script(self):
        with self.terminal() as terminal:
            self.ask(terminal, "/frob grüße🦊")
            terminal.seen = len(terminal.output)
            terminal.type("\x1b[A\x7fé\r")  # one character less, another in its place
            terminal.expect("there is no command /frob; /quit leaves".encode())
            self.ask(terminal, "/system grüße🦊")
            terminal.seen = len(terminal.output)
            terminal.type("\x1b[A\x7fé\r")
            terminal.expect(PROMPT)
            terminal.type("/system\r")
            terminal.expect("system: grüßeé".encode())

    def test_interrupt_at_the_prompt_drops_the_line_and_twice_says_how_to_leave(self):
        with self.terminal() as terminal:
            terminal.expect(PROMPT)
            terminal.type("/quit")
            terminal.expect(rb"/quit")
            terminal.type("\x03")
            terminal.expect(PROMPT)
            self.assertNotIn(b"Ctrl-D", terminal.output.replace(b"/help", b""))
            terminal.type("\x03")
            terminal.expect(rb"/quit or press Ctrl-D")
            terminal.expect(PROMPT)
            terminal.type("\x04")
            self.assertEqual(terminal.wait(), DONE)

    def test_interrupt_stops_the_answer_and_keeps_what_was_said(self):
        # So hot that no end token comes for long.
        with self.terminal("--temperature", "5", "--seed", "1") as terminal:
            terminal.enter(STORY)
            terminal.expect(rb"\n[^\n]{10}")
            terminal.type("\x03")
            terminal.expect(rb"interrupted")
            terminal.enter(f"/save {self.file}")
            terminal.enter("/quit")
            self.assertEqual(terminal.wait(), DONE)
        messages = json.loads(self.file.read_text(encoding="utf-8"))["messages"]
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"])
        self.assertTrue(messages[1]["content"])
        self.assertNotIn("wo_eos", messages[1])

    def test_interrupt_before_anything_was_said_takes_the_question_back(self):
        options = ["--temperature", "0", "--device", "reference"]  # slow enough
        with self.terminal(*options) as terminal:
            terminal.enter("word " * 700)
            self.assertTrue(terminal.becomes(cooked=True))  # the editor has done
            terminal.type("\x03")
            terminal.expect(rb"taken back")
            self.assertIn(b"Ylva", self.ask(terminal, FOUNDER))
            self.ask(terminal, f"/save {self.file}")
        messages = json.loads(self.file.read_text(encoding="utf-8"))["messages"]
        self.assertEqual(messages[0]["content"], FOUNDER)

    def test_errors_do_not_end_it_and_change_nothing(self):
        tools = NANO / "tools.json"
        with self.terminal("--temperature", "0", "--context", "1200", "--tools", str(tools)) as terminal:
            for line in ("/frobnicate", "/tools /nowhere", "/load /nowhere", "/effort low", "<think>"):
                self.assertIn(b"error: ", self.ask(terminal, line))
            self.assertIn(b"get_distance", self.ask(terminal, "/tools"))
            self.assertIn(b"no room", self.ask(terminal, "word " * 1000))
            self.ask(terminal, '"""')
            terminal.type("\x04")
            terminal.expect(rb"error: .*several lines")
            self.ask(terminal, f"/save {self.file}")
        saved = json.loads(self.file.read_text(encoding="utf-8"))
        self.assertEqual(saved["messages"], [{"role": "system", "content": ""}])
        self.assertEqual((saved["tools"], saved["effort"]), (json.loads(tools.read_text()), "none"))

    def test_an_answer_cannot_write_control_characters(self):
        options = ["--temperature", "9", "--seed", "3", "-n", "600", "--quiet"]
        with self.terminal(*options, TERM="dumb") as terminal:
            text = self.ask(terminal, STORY)
        self.assertIn(b"\\x", text)  # there were some
        self.assertEqual(re.findall(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text), [])

    def test_after_a_stop_the_editor_sets_itself_up_again(self):
        with self.terminal() as terminal:
            terminal.next_prompt()
            terminal.set_cooked()  # as the shell does
            os.kill(terminal.pid, signal.SIGCONT)
            self.assertTrue(terminal.becomes(cooked=False))
            terminal.type("/think\r")
            terminal.expect(rb"thinking is off")

    def test_termination_leaves_the_terminal_usable(self):
        with self.terminal() as terminal:
            terminal.next_prompt()
            self.assertFalse(terminal.is_cooked())
            os.kill(terminal.pid, signal.SIGTERM)
            self.assertTrue(terminal.becomes(cooked=True))
            self.assertEqual(terminal.wait(), INTERRUPTED)


class DocumentedSession(CliTest):
    def test_the_session_is_what_the_program_writes(self):
        document = Session()
        self.assertGreater(len(document.inputs), 5)
        self.assertEqual(document.replay(), document.text)


class Session:
    """The session in docs/chat-session.md: a block that begins with the command line."""

    BLOCK = re.compile(r"^```text\n\$ (dsv4 chat [^\n]*)\n(.*?)^```$", re.S | re.M)
    INPUT = re.compile(r"^(?:> |\.\.\. |result of .*?> )(.*)$", re.M)
    FIGURES = re.compile(r"[\d.]+ tokens/s")
    PROGRESS = re.compile(r"^reading the prompt: .*\n", re.M)  # of a machine that takes long for it

    def __init__(self):
        self.path = SOURCE / "docs" / "chat-session.md"
        match = self.BLOCK.search(self.path.read_text(encoding="utf-8"))
        self.command, self.recorded = match.groups()
        self.inputs = self.INPUT.findall(self.recorded)
        self.text = self.without_rates(self.recorded)

    def without_rates(self, text):
        return self.FIGURES.sub("N tokens/s", text)

    def run(self):
        command = [PROGRAM, *shlex.split(self.command)[1:]]
        with tempfile.TemporaryDirectory() as home:
            with Terminal(command, SOURCE, home, TERM="dumb") as terminal:
                for line in self.inputs:
                    terminal.enter(line)
                code = terminal.wait()
                if code != DONE:
                    raise AssertionError(f"exit code {code}")
        text = terminal.output.decode().replace("\r\n", "\n")
        text = text[text.index("models/nano on") :]  # a slow disk makes loading say something
        return self.PROGRESS.sub("", text)

    def replay(self):
        return self.without_rates(self.run())

    def record(self):
        document = self.path.read_text(encoding="utf-8")
        self.path.write_text(document.replace(self.recorded, self.run()), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[3:] == ["--record"]:
        Session().record()
    else:
        main()
