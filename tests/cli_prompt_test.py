#!/usr/bin/env python3
"""Tests of dsv4 prompt and dsv4 parse: DeepSeek's fixtures through the program, and what is refused.

    cli_prompt_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json

from cli_testing import BAD_USAGE, EOS, FAILED, NANO, SOURCE, CliTest, load_tests, main, run

CHAT = SOURCE / "tests" / "data" / "chat"
CASES = json.loads((CHAT / "cases.json").read_text(encoding="utf-8"))
STEP = 8  # of the cases, all of which the library's own tests see
TOOL_CALL = (
    '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n{}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>' + EOS
)
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


def parameter(name, value, is_string="true"):
    return f'<｜DSML｜parameter name="{name}" string="{is_string}">{value}</｜DSML｜parameter>'


class Prompt(CliTest):
    def test_official_fixtures(self):
        for i in range(1, 5):
            conversation = json.loads((CHAT / f"test_input_{i}.json").read_text(encoding="utf-8"))
            if isinstance(conversation, list):
                conversation = {"messages": conversation}
            conversation["thinking"] = i != 4
            path = self.write("conversation.json", json.dumps(conversation))
            result = run("prompt", NANO, path)
            with self.subTest(fixture=i):
                self.expect_done(result)
                self.assertEqual(result.stdout, (CHAT / f"test_output_{i}.txt").read_bytes())
                self.assertEqual(result.stderr, b"")

    def test_published_prompts(self):
        for i, case in list(enumerate(CASES["prompts"]))[::STEP]:
            with self.subTest(case=i):
                result = run("prompt", NANO, "-", stdin=json.dumps(case, ensure_ascii=False))
                self.assertEqual(self.expect_done(result), case["prompt"])

    def test_ids_are_those_of_the_text(self):
        path = self.write("hello.json", json.dumps(HELLO))
        text = self.expect_done(run("prompt", NANO, path))
        ids = self.expect_done(run("prompt", NANO, path, "--ids"))
        self.assertEqual(ids, self.expect_done(run("tokenize", NANO, stdin=text)))
        self.assertTrue(ids.startswith("0 "))

    def test_effort_is_that_of_the_release(self):
        request = dict(HELLO, thinking=True, effort="low")
        result = run("prompt", NANO, stdin=json.dumps(request))
        self.expect_error(result, FAILED, "standard input", "effort")
        model = self.copy_of_nano()
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(dict(config, dspark_block_size=5)))
        self.expect_done(run("prompt", model, stdin=json.dumps(request)))
        request["effort_table"] = "initial"
        self.expect_error(run("prompt", model, stdin=json.dumps(request)), FAILED, "effort")

    def test_refusals_name_the_input(self):
        path = self.write("bad.json", "{")
        self.expect_error(run("prompt", NANO, path), FAILED, str(path), "not valid JSON")
        path = self.write("bad.json", '{"messages": [{"role": "cook"}]}')
        self.expect_error(run("prompt", NANO, path), FAILED, str(path), "messages[0].role", "cook")
        self.expect_error(run("prompt", NANO, stdin=b'"\xff"'), FAILED, "standard input")
        self.expect_error(run("prompt", NANO, self.folder / "none"), FAILED, "none")

    def test_model_without_chat_marks_is_refused(self):
        model = self.copy_of_nano()
        text = (model / "tokenizer.json").read_text(encoding="utf-8")
        self.assertIn("<｜User｜>", text)
        (model / "tokenizer.json").write_text(text.replace("<｜User｜>", "<｜Cook｜>"))
        for command in ("prompt", "parse"):
            result = run(command, model, stdin=json.dumps(HELLO))
            self.expect_error(result, FAILED, "User")

    def test_weights_are_not_needed(self):
        model = self.copy_of_nano(without=["model.safetensors"])
        self.expect_done(run("prompt", model, stdin=json.dumps(HELLO)))


class Parse(CliTest):
    def parse(self, text, *arguments):
        return json.loads(self.expect_done(run("parse", NANO, *arguments, stdin=text)))

    def test_published_completions(self):
        for i, case in list(enumerate(CASES["completions"]))[::STEP]:
            arguments = ["--think"] if case["thinking"] else []
            with self.subTest(case=i):
                strict = run("parse", NANO, "--strict", *arguments, stdin=case["text"])
                reply = self.parse(case["text"], *arguments)
                if case["message"] is None:
                    self.expect_error(strict, FAILED, "refused")
                    self.assertTrue(reply["warning"])
                    self.assertEqual(reply["tool_calls"], [])
                    continue
                self.assertEqual(json.loads(self.expect_done(strict)), reply)
                self.assertNotIn("warning", reply)
                self.assertEqual(reply["content"], case["message"]["content"])
                self.assertEqual(reply["reasoning_content"], case["message"]["reasoning_content"])
                self.assertEqual(
                    [call["function"] for call in reply["tool_calls"]],
                    [call["function"] for call in case["message"]["tool_calls"]],
                )

    def test_shape_is_openais(self):
        reply = self.parse("so</think>hi" + TOOL_CALL.format(parameter("a", "1")), "--think")
        want = {
            "role": "assistant",
            "reasoning_content": "so",
            "content": "hi",
            "tool_calls": [
                {
                    "id": "call_0",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a": "1"}'},
                }
            ],
        }
        self.assertEqual(reply, want)
        self.assertEqual(list(reply), list(want))

    def test_result_may_stand_in_the_next_prompt(self):
        completion = "hi" + TOOL_CALL.format(parameter("a", "[1, 2]", "false"))
        request = {"messages": [*HELLO["messages"], self.parse(completion)]}
        prompt = self.expect_done(run("prompt", NANO, stdin=json.dumps(request)))
        self.assertTrue(prompt.endswith("</think>" + completion), prompt)

    def test_wrapped_arguments_are_unwrapped_by_the_tools(self):
        wrapped = TOOL_CALL.format(parameter("arguments", '{"a": 1}'))
        function = {"name": "f", "parameters": {"properties": {"a": {}}}}
        tools = [{"type": "function", "function": function}]
        for content in (tools, {"messages": [], "tools": tools}):
            path = self.write("tools.json", json.dumps(content))
            calls = self.parse(wrapped, "--tools", path)["tool_calls"]
            self.assertEqual(calls[0]["function"]["arguments"], '{"a": 1}')
        function["parameters"]["properties"]["arguments"] = {}
        path = self.write("tools.json", json.dumps(tools))
        calls = self.parse(wrapped, "--tools", path)["tool_calls"]
        self.assertEqual(json.loads(calls[0]["function"]["arguments"]), {"arguments": '{"a": 1}'})

    def test_nothing_is_trimmed_and_nothing_is_lost(self):
        self.assertEqual(self.parse(" a\n\n" + EOS)["content"], " a\n\n")
        for text, reason in (("a<think>b", "<think>"), ("a" + EOS + "\n", "")):
            reply = self.parse(text + EOS)
            self.assertEqual(reply["content"], text)
            self.assertIn(reason, reply["warning"])
        reply = self.parse("without an end mark\n")
        self.assertEqual(reply["content"], "without an end mark\n")
        self.assertIn(EOS, reply["warning"])

    def test_file_and_ids_are_other_ways_in(self):
        text = "Hello, 世界" + EOS
        want = self.parse(text)
        path = self.write("completion.txt", text)
        self.assertEqual(self.parse("", "--file", path), want)
        ids = self.expect_done(run("tokenize", NANO, stdin=text))
        self.assertEqual(self.parse(ids, "--ids"), want)

    def test_pipeline_of_ids_asks_the_model(self):
        question = json.loads((NANO / "questions.jsonl").read_text(encoding="utf-8").split("\n")[0])
        prompt = run("prompt", NANO, "--ids", stdin=json.dumps(question))
        answer = run(
            "generate", NANO, "--ids", "--temperature", "0", stdin=self.expect_done(prompt)
        )
        reply = self.parse(self.expect_done(answer), "--ids", "--strict")
        self.assertEqual(reply["content"], question["answer"])

    def test_invalid_utf8_is_noted(self):
        result = run("parse", NANO, stdin=b"a\xff" + EOS.encode())
        self.assertEqual(json.loads(self.expect_done(result))["content"], "a\ufffd")
        self.assertIn("not valid UTF-8", result.stderr.decode())

    def test_refusals_name_the_input(self):
        cases = [("{", "not valid JSON"), ("{}", "no tools"), ('[{"type": 1}]', "tools[0]")]
        for content, part in cases:
            path = self.write("tools.json", content)
            result = run("parse", NANO, "--tools", path, stdin="x" + EOS)
            self.expect_error(result, FAILED, str(path), part)
        self.expect_error(run("parse", NANO, "--file", self.folder / "none"), FAILED, "none")
        self.expect_error(run("parse", NANO, "--ids", stdin="x"), FAILED, "x")
        self.expect_error(run("parse", NANO, "extra", stdin="x"), BAD_USAGE, "extra")


if __name__ == "__main__":
    main()
