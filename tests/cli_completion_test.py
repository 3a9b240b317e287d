#!/usr/bin/env python3
"""Tests of dsv4 completion: the scripts, sourced by their shells, complete what the program has.

    cli_completion_test.py PROGRAM SOURCE_DIR [unittest arguments]

zsh and fish are used where they are installed.
"""

import re
import shutil
import subprocess

from cli_testing import BAD_USAGE, TIMEOUT_S, CliTest, load_tests, main, run

# Sources the script, sets the words as bash would, and prints what it offers.
BASH = r"""
source /dev/stdin <<< "$SCRIPT"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_dsv4
printf '%s\n' "${COMPREPLY[@]}"
"""


def commands():
    help_text = run("--help").stdout.decode()
    return re.findall(r"^  ([a-z]+) {2,}", help_text[help_text.index("Subcommands:") :], re.M)


class Completion(CliTest):
    def setUp(self):
        super().setUp()
        (self.folder / "models").mkdir()
        (self.folder / "models" / "my nano").mkdir()
        self.write("notes.txt", "")

    def script(self, shell):
        return self.expect_done(run("completion", shell))

    def complete(self, *words):
        result = subprocess.run(
            ["bash", "-c", BASH, "bash", "dsv4", *words],
            env={"SCRIPT": self.script("bash"), "PATH": "/usr/bin:/bin"},
            cwd=self.folder,
            capture_output=True,
            timeout=TIMEOUT_S,
            text=True,
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [line for line in result.stdout.split("\n") if line]

    def test_bash_knows_every_command_and_option(self):
        offered = self.complete("")
        self.assertLessEqual(set(commands()), set(offered))
        self.assertIn("--version", offered)
        for command in commands():
            with self.subTest(command=command):
                options = set(self.complete(command, "--"))
                self.assertIn("--help", options)
                # The help's examples may name options of other commands.
                usage = run(command, "--help").stdout.decode().split("Options:")[1]
                usage = re.findall(r"^  (?:-\w,)?(--[a-z-]+)", usage, re.M)
                self.assertEqual(options, set(usage))

    def test_bash_completes_by_what_stands_before(self):
        cases = [
            (["gen"], ["generate"]),
            (["pro"], ["prompt"]),
            (["completion", ""], ["bash", "zsh", "fish"]),
            (["completion", "f"], ["fish"]),
            (["generate", "m"], ["models"]),
            (["generate", "models/"], ["models/my nano"]),
            (["generate", "no"], []),  # a file is no model
            (["generate", "models", "--act"], ["--activations"]),
            (["generate", "models", "--activations", "a1"], ["a16"]),
            (["generate", "--activations", "=", "a1"], ["a16"]),
            (["generate", "--activations", "="], ["auto", "a16", "a8", "a4"]),
            (["generate", "--device", "r"], ["reference"]),
            (["generate", "--prompt-file", "no"], ["notes.txt"]),
            (["generate", "-p", "m"], []),  # a text is for the user to know
            (["generate", "-p", "generate", "m"], ["models"]),
            (["perplexity", "m"], ["models"]),
            (["perplexity", "models", "no"], ["notes.txt"]),
            (["perplexity", "models", "--window", "5", "no"], ["notes.txt"]),
            (["perplexity", "models", "notes.txt", "no"], []),
            (["frobnicate", ""], []),
            (["frobnicate", "--"], []),
        ]
        for words, want in cases:
            with self.subTest(words=words):
                self.assertEqual(self.complete(*words), want)

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        script = self.script("zsh")
        self.assertTrue(script.startswith("#compdef dsv4\n"))
        check = "autoload -U compinit; compinit -u -d $1; source /dev/stdin; print $_comps[dsv4]"
        result = subprocess.run(
            ["zsh", "-f", "-c", check, "zsh", self.folder / "dump"],
            input=script,
            capture_output=True,
            timeout=TIMEOUT_S,
            text=True,
        )
        self.assertEqual((result.stdout, result.stderr), ("_dsv4\n", ""))

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        (self.folder / "dsv4.fish").write_text(self.script("fish"), encoding="utf-8")
        cases = [
            ("dsv4 gen", ["generate"]),
            ("dsv4 completion f", ["fish"]),
            ("dsv4 generate --activations a1", ["a16"]),
            ("dsv4 generate --prompt-file no", ["notes.txt"]),
            ("dsv4 generate --prom", ["--prompt", "--prompt-file"]),
        ]
        for line, want in cases:
            result = subprocess.run(
                ["fish", "--no-config", "-c", f"source dsv4.fish; complete -C '{line}'"],
                env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
                cwd=self.folder,
                capture_output=True,
                timeout=TIMEOUT_S,
                text=True,
            )
            with self.subTest(line=line):
                offered = [offer.split("\t")[0] for offer in result.stdout.splitlines()]
                self.assertEqual(offered, want, result.stderr)

    def test_another_shell_is_refused(self):
        self.expect_error(run("completion", "tcsh"), BAD_USAGE, "tcsh", "bash")
        self.expect_error(run("completion"), BAD_USAGE, "SHELL")


if __name__ == "__main__":
    main()
