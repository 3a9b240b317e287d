"""Feeds check_markdown_paths.py documents whose dead paths are known."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import check_markdown_paths


class CheckMarkdownPathsTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.root = Path(temp.name)
        for name in ["src/base/error.h", "include/dsv4/x.h", "docs/a.md", "tools/run.sh", "Makefile"]:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def missing(self, text, name="README.md"):
        document = self.root / name
        document.parent.mkdir(parents=True, exist_ok=True)
        document.write_text(text)
        return list(check_markdown_paths.Checker(self.root).check(document))

    def test_existing_paths_pass(self):
        self.assertEqual(self.missing(
            "`src/base/error.h` `src/base/error.h:12` `base/error.h` `dsv4/x.h` `error.h` `src/base/`\n"
            "`tools/run.sh` [a](docs/a.md) [b](docs/a.md#part) [c](/docs/a.md) [d](#here)\n"
            "[ref]: docs/a.md\n"), [])

    def test_dead_paths_are_found_with_their_line(self):
        self.assertEqual(self.missing(
            "text\n`src/base/gone.h` and `base/gone.h`, `gone.sh`\n\n`src/gone/` [x](docs/gone.md)\n"
            "[ref]: gone.md\n`docs/gone`\n"),
            [(2, "src/base/gone.h"), (2, "base/gone.h"), (2, "gone.sh"), (4, "src/gone/"),
             (4, "docs/gone.md"), (5, "gone.md"), (6, "docs/gone")])

    def test_a_link_is_relative_to_its_document(self):
        self.assertEqual(self.missing("[up](../README.md) [a](a.md)\n", "docs/b.md"),
                         [(1, "../README.md")])

    def test_what_is_not_a_path_of_ours_is_left_alone(self):
        self.assertEqual(self.missing(
            "`src/*.cc` `ops/X.h` `<folder>/file.h` `make test` `src/a b` `https://x.org/a.md`\n"
            "`build/reference/apps/dsv4` `model.safetensors` `cpu/` `a/b` `../x.h` `$HOME/x.sh`\n"
            "[web](https://x.org/docs/gone.md) [mail](mailto:a@b.c) `MODEL/config.json` `*_test.cc`\n"
            "```\n`src/gone.h`\n```\n~~~\n[x](gone.md)\n```\n~~~\n"), [])

    def test_a_fence_ends_where_it_ends(self):
        self.assertEqual(self.missing("```sh\nx\n```\n`src/gone.h`\n"), [(4, "src/gone.h")])

    def test_build_folders_are_not_read(self):
        (self.root / "build").mkdir()
        (self.root / "build/a.md").write_text("`src/gone.h`\n")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(check_markdown_paths.main(["--root", str(self.root)]), 0)
        (self.root / "README.md").write_text("`src/gone.h`\n")
        with contextlib.redirect_stdout(out):
            self.assertEqual(check_markdown_paths.main(["--root", str(self.root)]), 1)
        self.assertIn("README.md:1: no such path: src/gone.h\n", out.getvalue())


if __name__ == "__main__":
    unittest.main()
