#!/usr/bin/env python3
"""Tests of dsv4 eval: scores, their JSON, and what is refused.

    cli_eval_test.py PROGRAM SOURCE_DIR [unittest arguments]

The slow class AllQuestions is left out unless it is named.
"""

import json
import os
import signal
import subprocess

from cli_testing import (
    BAD_USAGE,
    FAILED,
    INTERRUPTED,
    NANO,
    PROGRAM,
    CliTest,
    load_tests,
    main,
    run,
)

QUESTIONS = NANO / "questions.jsonl"
SHORT = ["--kind", "fact", "--kind", "copy", "--limit", "2"]


def evaluate(*arguments, questions=QUESTIONS, **kwargs):
    return run("eval", NANO, "--questions", questions, "--activations", "a16", *arguments, **kwargs)


def question(**fields):
    fields = {"messages": [{"role": "user", "content": "Who founded Ostholm?"}], **fields}
    return json.dumps(fields) + "\n"


class Eval(CliTest):
    def test_table_by_kind_and_total(self):
        result = evaluate(*SHORT)
        self.assertEqual(
            self.expect_done(result),
            "fact              2 of 2      100.0 %\n"
            "copy              2 of 2      100.0 %\n"
            "total             4 of 4      100.0 %\n",
        )
        self.assertIn("4 questions, ", result.stderr.decode())

    def test_json_agrees_with_the_questions_however_many_run(self):
        want = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
        replies = []
        for parallel in (1, 3):
            result = evaluate("--json", *SHORT, "--kind", "sum", "--parallel", parallel)
            replies.append(json.loads(self.expect_done(result)))
        self.assertEqual(replies[0], replies[1])
        reply = replies[0]
        self.assertEqual(reply["total"], 6)
        self.assertEqual([kind["total"] for kind in reply["kinds"]], [2, 2, 2])
        self.assertEqual(reply["correct"], sum(kind["correct"] for kind in reply["kinds"]))
        for one in reply["questions"]:
            asked = want[one["line"] - 1]
            self.assertEqual((one["kind"], one["expected"]), (asked["kind"], asked["answer"]))
            self.assertEqual(one["correct"], one["got"] == one["expected"])
            self.assertEqual(one["finish_reason"], "stop")
            prompt = self.expect_done(run("prompt", NANO, "--ids", stdin=json.dumps(asked)))
            self.assertEqual(one["prompt_tokens"], len(prompt.split()))
            answer = self.expect_done(run("tokenize", NANO, stdin=one["got"]))
            self.assertEqual(one["completion_tokens"], len(answer.split()) + 1)  # the end mark

    def test_wrong_answers_are_listed_with_their_line(self):
        text = question(answer="No\none", kind="x", id=7) + "\n" + question(answer="a", kind="x")
        text += question(answer="b", kind="x", id='7"')
        path = self.write("q.jsonl", text)
        out = self.expect_done(evaluate("--show-wrong", "--max-tokens", "1", questions=path))
        self.assertIn(f"\n{path}:1 x\n  expected  No\\none\n  got       ", out)
        self.assertIn(f"\n{path}:3 x\n", out)
        self.assertEqual(out.count("[cut at the length limit]"), 3)
        reply = json.loads(self.expect_done(evaluate("--json", questions=path)))
        self.assertEqual(reply["correct"], 0)
        self.assertEqual(reply["questions"][0]["id"], 7)
        self.assertNotIn("id", reply["questions"][1])
        self.assertEqual(reply["questions"][2]["id"], '7"')

    def test_tools_and_thinking_reach_the_prompt(self):
        lines = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
        tool = next(line for line in lines if line["kind"] == "tool")
        addition = {
            "messages": [{"role": "user", "content": "What is 27 + 48?"}],
            "answer": "75",
            "thinking": True,
        }
        text = json.dumps(tool) + "\n" + json.dumps(addition)
        reply = json.loads(self.expect_done(evaluate("--json", questions="-", stdin=text)))
        self.assertEqual(reply["correct"], 2)
        self.assertEqual(reply["kinds"][1]["kind"], "all")

    def test_refusals_name_file_and_line(self):
        path = self.write("q.jsonl", question(answer="a") + "{\n")
        result = evaluate(questions=path)
        self.expect_error(result, FAILED, f"{path}:2: not valid JSON: column ", "correct the line")
        self.assertNotIn(b"exception", result.stderr)
        path = self.write("q.jsonl", question(answer="a") + question())
        self.expect_error(evaluate(questions=path), FAILED, f"{path}:2: ", "answer is missing")
        context = [{"role": "user", "content": "c"}]
        path = self.write("q.jsonl", question(answer="a", context=context))
        self.expect_error(evaluate(questions=path), FAILED, f"{path}:1: context ", "messages")
        long = [{"role": "user", "content": "word " * 5000}]
        path = self.write("q.jsonl", question(answer="a", messages=long))
        self.expect_error(evaluate(questions=path), FAILED, f"{path}:1: ", "4096")
        self.expect_error(evaluate(questions=self.write("q", "")), FAILED, "no question")
        self.expect_error(evaluate(questions=self.folder / "none"), FAILED, "none")
        self.expect_error(evaluate("--kind", "tune"), FAILED, "tune", "copy", "recall256")

    def test_bad_usage(self):
        self.expect_error(run("eval", NANO), BAD_USAGE, "--questions")
        for option in ("--parallel", "--limit", "--max-tokens"):
            self.expect_error(evaluate(option, "0"), BAD_USAGE, option)
        self.expect_error(evaluate("--parallel", "257"), BAD_USAGE, "256")

    def test_interrupt_ends_it(self):
        command = [PROGRAM, "eval", str(NANO), "--questions", str(QUESTIONS), "--parallel", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stderr.read(1)  # the first tenth
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate()
        self.assertEqual((process.returncode, out), (INTERRUPTED, b""))
        self.assertTrue(errors.endswith(b"dsv4: interrupted\n"), errors)


class Progress(CliTest):
    def stderr_on_a_terminal(self, term):
        leader, terminal = os.openpty()
        command = [PROGRAM, "eval", str(NANO), "--questions", str(QUESTIONS), *SHORT]
        env = {**os.environ, "TERM": term}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal, env=env) as process:
            os.close(terminal)
            shown = b""
            try:
                while piece := os.read(leader, 65536):
                    shown += piece
            except OSError:  # how a terminal says that all writers are gone
                pass
            os.close(leader)
            self.assertEqual(process.wait(), 0, shown)
        return shown.decode()

    def test_bar_on_a_terminal_leaves_only_the_figures(self):
        shown = self.stderr_on_a_terminal("xterm")
        self.assertIn("[########################] answering: 4 of 4 questions, 4 correct", shown)
        self.assertEqual(shown.count("\n"), 1, shown)
        last = shown.split("\x1b[K")[-1]
        self.assertRegex(last, r"^4 questions, \d+ prompt tokens")

    def test_lines_where_no_bar_can_be_drawn(self):
        dumb = self.stderr_on_a_terminal("dumb")
        self.assertNotIn("\x1b", dumb)
        self.assertIn("\nanswering: 4 of 4 questions, 4 correct", "\n" + dumb)
        piped = evaluate(*SHORT).stderr.decode()
        self.assertNotIn("\x1b", piped)
        self.assertIn("answering: 4 of 4 questions, 4 correct\n", piped)
        self.assertNotIn("loading", piped)  # it takes a moment only


class AllQuestions(CliTest):
    slow = True

    def test_recorded_scores(self):
        """models/nano/README.md, measured with DeepSeek's code: each kind within one."""
        want = {
            "copy": 20,
            "fact": 20,
            "tool": 20,
            "recall256": 19,
            "recall3072": 17,
            "list": 17,
            "recall1024": 15,
            "sum": 10,
        }
        reply = json.loads(self.expect_done(evaluate("--json")))
        self.assertEqual(reply["total"], 160)
        self.assertEqual({kind["kind"] for kind in reply["kinds"]}, set(want))
        for kind in reply["kinds"]:
            self.assertEqual(kind["total"], 20)
            # A near tie may fall either way on another backend.
            self.assertLessEqual(abs(kind["correct"] - want[kind["kind"]]), 1, kind)


if __name__ == "__main__":
    main()
