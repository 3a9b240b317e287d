#!/usr/bin/env python3
"""Checks that every path named in the project's Markdown exists.

Looks at link targets and at words in backticks that can only be paths of ours; what is a pattern, a
placeholder, a command line or a URL is left alone, and so are fenced blocks.

    tools/check_markdown_paths.py [--root DIR]

Prints FILE:LINE: what is missing. Exit codes: 0 clean, 1 something is missing, 2 usage.
"""

import argparse
import os
import re
import sys
from pathlib import Path

SKIPPED_FOLDERS = {"build", "out", "node_modules", "__pycache__"}

# A word in backticks without a folder is a path of ours if it ends so. Data files are not listed:
# config.json and its like are spoken of as parts of any checkpoint.
SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".md", "CMakeLists.txt",
            "CMakePresets.json", "Makefile")
# Short forms are understood as in an include: "base/error.h" is src/base/error.h.
BASES = ("", "src", "include")

FENCE = re.compile(r"^\s*(```+|~~~+)")
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\s*\[[^\]]+\]:\s*(\S+)")
PATH = re.compile(r"[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*/?$")
PLACEHOLDER = re.compile(r"(^|[/_.-])[XYN]([/_.-]|$)|(^|/)[A-Z]+(/|$)")  # ops/X.h, MODEL/


def markdown_files(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("."))
        for name in sorted(files):
            if name.endswith(".md"):
                yield Path(folder) / name


class Checker:
    def __init__(self, root):
        self.root = Path(root).resolve()
        self.top = {p.name for p in self.root.iterdir()
                    if p.is_dir() and p.name not in SKIPPED_FOLDERS and p.name != ".git"}
        self.names = set()  # every file name of the tree, for words without a folder
        for _, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if f not in SKIPPED_FOLDERS and f != ".git"]
            self.names.update(files)

    def looks_like_ours(self, word):
        if not PATH.match(word) or ".." in word:
            return False
        if PLACEHOLDER.search(word):
            return False
        if "/" in word:
            return word.split("/")[0] in self.top or word.endswith(SUFFIXES)
        return word.endswith(SUFFIXES) and word not in SUFFIXES

    def exists(self, word, document):
        if (document.parent / word).exists():
            return True
        if any((self.root / base / word).exists() for base in BASES):
            return True
        return "/" not in word and word in self.names

    def check(self, document):
        """Yields (line, word) of what does not exist."""
        fence = None
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
            match = FENCE.match(line)
            if match:
                mark = match[1][:3]
                fence = mark if fence is None else None if fence == mark else fence
                continue
            if fence:
                continue
            for match in CODE.finditer(line):
                word = re.sub(r":\d+(-\d+)?$", "", match[2].strip())
                if self.looks_like_ours(word) and not self.exists(word, document):
                    yield number, word
            for match in LINK.finditer(CODE.sub("", line)):
                target = (match[1] or match[2]).split("#")[0].split("?")[0]
                if not target or re.match(r"[a-z][a-z0-9+.-]*:|//", target, re.I):
                    continue
                base = self.root if target.startswith("/") else document.parent
                if not (base / target.lstrip("/")).exists():
                    yield number, target


def main(argv):
    parser = argparse.ArgumentParser(description="Checks the paths named in Markdown.")
    parser.add_argument("--root", default=Path(__file__).resolve().parent.parent, type=Path)
    root = parser.parse_args(argv).root
    if not root.is_dir():
        print(f"check_markdown_paths: no folder {root}", file=sys.stderr)
        return 2
    checker = Checker(root)
    documents, missing = 0, 0
    for document in markdown_files(checker.root):
        documents += 1
        for line, word in checker.check(document):
            missing += 1
            print(f"{document.relative_to(checker.root).as_posix()}:{line}: no such path: {word}")
    print(f"check_markdown_paths: {documents} files, {missing} missing paths")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
