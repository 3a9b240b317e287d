#!/usr/bin/env python3
"""Checks the arrows between the folders of the source tree, and what else a folder promises.

The table below is the rule; docs/architecture.md explains it. Reads includes and string literals as
text, without a preprocessor: an include under a false #if counts.

    tools/check_layers.py [--root DIR]

Prints FILE:LINE: RULE: what is wrong. Exit codes: 0 clean (warnings allowed), 1 violations, 2 usage.
"""

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

BELOW = "and below"  # also every row before each named folder, except the implementations

# Folder of src/ -> what it may include besides itself and the public headers, lowest layer first.
LAYERS = {
    "base": [],
    "numerics": ["base"],
    "tensor": ["numerics", "base"],
    "io": ["tensor", BELOW],
    "checkpoint": ["io", BELOW],
    "ops": ["tensor", BELOW],
    "reference": ["ops", BELOW],
    "cpu": ["ops", BELOW],
    "cuda": ["ops", BELOW],
    "backends": ["ops", "reference", "cpu", "cuda", "base"],
    "comm": ["ops", BELOW],
    "kv": ["ops", "tensor", "base"],
    "text": ["base"],
    "model": ["ops", "comm", "kv", "checkpoint", BELOW],
    "runtime": ["backends", "model", "kv", "text", BELOW],
    "quantizer": ["checkpoint", "ops", "runtime", BELOW],
    "server": ["text", "base"],
    "testing": ["*"],
}

# Reached through backends/ only, so "and below" never covers them.
IMPLEMENTATIONS = {"reference", "cpu", "cuda"}

# A *_test.cc may include these besides what its folder may.
TEST_EXTRAS = {"testing", "backends"}

# Folders of programs beside src/; they may include everything but CUDA headers.
PROGRAMS = ["apps", "bench", "tests"]

CUDA_HEADER = re.compile(
    r"(cuda.*|cub/.*|nv.*|thrust/.*|cooperative_groups.*|cu(blas|rand|sparse|solver|dnn|fft).*"
    r"|mma\.h|device_launch_parameters\.h)$"
)
# C++ headers have no suffix and no folder; the C ones are what a C API may need.
STANDARD_HEADER = re.compile(r"([a-z_0-9]+|std(int|def|bool|io|lib)\.h)$")

# Names of tensors as published. They may not stand in a string outside checkpoint/.
CHECKPOINT_NAME = re.compile(
    r"(?<![A-Za-z0-9_])(wq_a|wq_b|wkv|wgate|wo_a|wo_b|weights_proj|tid2eid"
    r"|hc_(attn|ffn|head)_(fn|base|scale))(?![A-Za-z0-9_])"
)
# Published names that are also words or names of ours. Only a whole literal or a part between dots
# counts, and nothing in the folders that never see a checkpoint, where they are fields of params.
SHARED_NAME = re.compile(r"(^|\.)(attn_sink|ape)(\.|$)")
NEVER_SEES_A_CHECKPOINT = {"ops", "kv", "testing", "bench"} | IMPLEMENTATIONS

WARN_LINES, MAX_LINES = 400, 800

SUFFIXES = {".h", ".hpp", ".cc", ".cpp", ".cu", ".cuh", ".inc"}

# Comments, raw strings, strings, characters. A quote after a digit or letter is a separator (1'000).
TOKEN = re.compile(
    r"(?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))"
    r'|R"(?P<delim>[^()\\\s]{0,16})\((?P<raw>.*?)\)(?P=delim)"'
    r'|"(?P<string>(?:\\.|[^"\\\n])*)"'
    r"|(?<![0-9A-Za-z_])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"(?P<own>[^"\n]+)"|<(?P<system>[^>\n]+)>)', re.M)


def allowed_folders(folder):
    """The folders of src/ that ordinary files of `folder` may include, itself among them."""
    names = list(LAYERS)
    allowed = {folder}
    row = LAYERS[folder]
    if "*" in row:
        return set(names)
    for name in row:
        if name == BELOW:
            continue
        allowed.add(name)
        if BELOW in row:
            allowed.update(set(names[: names.index(name)]) - IMPLEMENTATIONS)
    return allowed


@dataclass
class Report:
    violations: list = field(default_factory=list)
    warnings: list = field(default_factory=list)
    files: int = 0

    def add(self, path, line, rule, message):
        self.violations.append(f"{path}:{line}: {rule}: {message}")


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def scan(text):
    """Returns (text with comments blanked, [(line, content)] of its string literals)."""
    literals = []

    def blank(match):
        if match["comment"] is not None:
            return re.sub(r"[^\n]", " ", match[0])
        content = match["raw"] if match["raw"] is not None else match["string"]
        if content is not None:
            literals.append((line_of(text, match.start()), content))
        return match[0]

    return TOKEN.sub(blank, text), literals


class Checker:
    def __init__(self, root):
        self.root = Path(root)
        self.report = Report()
        self.edges = {}  # (from, to) -> first place, of product code

    def run(self):
        for top in ["include", "src", *PROGRAMS, "python"]:
            base = self.root / top
            for path in sorted(base.rglob("*")) if base.is_dir() else []:
                if path.is_file():
                    self.check_file(path, top)
        self.check_cycles()
        return self.report

    def check_file(self, path, top):
        relative = path.relative_to(self.root)
        name = relative.as_posix()
        if path.suffix not in SUFFIXES:
            return
        self.report.files += 1
        text = path.read_text(encoding="utf-8", errors="replace")
        folder = relative.parts[1] if top == "src" else top
        self.check_shape(path, name, text)
        if top == "src" and folder not in LAYERS:
            self.report.add(name, 1, "unknown-folder", "this folder has no row in the layer table")
            return
        if path.suffix in (".cu", ".cuh") and not name.startswith("src/cuda/"):
            self.report.add(name, 1, "cuda-header", "CUDA source belongs in src/cuda/")

        code, literals = scan(text)
        include_lines = set()
        for match in INCLUDE.finditer(code):
            line = line_of(code, match.start("own") if match["own"] else match.start("system"))
            include_lines.add(line)
            self.check_include(path, name, line, folder, match["own"], match["system"])
        self.check_literals(name, folder, [x for x in literals if x[0] not in include_lines])

    def check_shape(self, path, name, text):
        # A header speaks for the .cc or .cu of the same name.
        speaks = path.suffix in (".cc", ".cu") and path.with_suffix(".h").is_file()
        if not speaks and not text.lstrip("\ufeff").startswith(("//", "/*")):
            self.report.add(name, 1, "opening-comment", "a file opens with its job and its border")
        lines = text.count("\n") + (not text.endswith("\n") and bool(text))
        if lines > MAX_LINES:
            self.report.add(name, MAX_LINES + 1, "length", f"{lines} lines, at most {MAX_LINES}")
        elif lines > WARN_LINES:
            self.report.warnings.append(f"{name}: warning: {lines} lines, aim for {WARN_LINES}")

    def resolve(self, path, folder, included):
        """Returns (whether the quoted path names a file of ours, the layer it lies in)."""
        parts = included.split("/")
        if ".." in parts or "." in parts:
            return False, None
        if parts[0] == "dsv4":
            return (self.root / "include" / included).is_file(), "include"
        if len(parts) > 1 and (self.root / "src" / included).is_file():
            return True, parts[0]
        if folder in PROGRAMS + ["python"]:
            for base in (path.parent, self.root):
                if (base / included).is_file():
                    return True, folder
        return False, None

    def check_include(self, path, name, line, folder, own, system):
        add = self.report.add
        if system is not None:
            if "/" in system and self.resolve(path, "src", system)[0]:
                add(name, line, "include-form", f'own headers are quoted: "{system}"')
            elif CUDA_HEADER.match(system) and folder != "cuda":
                add(name, line, "cuda-header", f"<{system}> may be included in src/cuda/ only")
            elif folder == "include" and not STANDARD_HEADER.match(system):
                add(name, line, "public-header",
                    f"<{system}>: public headers include the standard library and dsv4/ only")
            return

        found, target = self.resolve(path, folder, own)
        if not found:
            if CUDA_HEADER.match(own) and folder != "cuda":
                add(name, line, "cuda-header", f'"{own}" may be included in src/cuda/ only')
            else:
                add(name, line, "unresolved", f'no file "{own}" under src/ or include/ '
                    "(write own headers as folder/file.h, others in angle brackets)")
            return
        if folder == "include":
            if target != "include":
                add(name, line, "public-header", f'"{own}": public headers include dsv4/ only')
            return
        if target == "include" or folder in PROGRAMS:
            return
        if folder == "python":
            if target != "python":
                add(name, line, "layer", f'python/ may include public headers only, not "{own}"')
            return

        allowed = allowed_folders(folder)
        if path.stem.endswith("_test"):
            allowed = allowed | TEST_EXTRAS
        else:
            self.edges.setdefault((folder, target), (name, line))
        if target not in allowed:
            add(name, line, "layer", f'{folder}/ may not include "{own}" '
                f"(it may include: {', '.join(n for n in LAYERS if n in allowed)})")

    def check_literals(self, name, folder, literals):
        is_test = Path(name).stem.endswith("_test") or folder in ("tests", "testing")
        if folder == "checkpoint" or is_test:
            return  # tests hold what the outside world looks like, damaged checkpoints included
        for line, content in literals:
            match = CHECKPOINT_NAME.search(content)
            if not match and folder not in NEVER_SEES_A_CHECKPOINT:
                match = SHARED_NAME.search(content)
            if match:
                self.report.add(name, line, "checkpoint-name",
                    f'"{content[:60]}" holds a published tensor name; only src/checkpoint/ knows them')

    def check_cycles(self):
        """Reports one include of every cycle among folders; possible even if the table is wrong."""
        graph = {}
        for source, target in self.edges:
            if source != target and target in LAYERS:
                graph.setdefault(source, set()).add(target)
        done, stack = set(), []

        def visit(node):
            if node in done:
                return
            if node in stack:
                cycle = stack[stack.index(node):] + [node]
                place = self.edges[(cycle[-2], cycle[-1])]
                self.report.add(*place, "cycle", "folders include each other: " + " -> ".join(cycle))
                return
            stack.append(node)
            for target in sorted(graph.get(node, ())):
                visit(target)
            stack.pop()
            done.add(node)

        for node in sorted(graph):
            visit(node)


def main(argv):
    parser = argparse.ArgumentParser(description="Checks the layers of the source tree.")
    parser.add_argument("--root", default=Path(__file__).resolve().parent.parent, type=Path)
    root = parser.parse_args(argv).root
    if not (root / "src").is_dir():
        print(f"check_layers: {root} has no src/", file=sys.stderr)
        return 2
    report = Checker(root).run()
    for line in report.warnings + report.violations:
        print(line)
    print(f"check_layers: {report.files} files, {len(report.violations)} violations")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
