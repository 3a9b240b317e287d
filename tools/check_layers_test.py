"""Plants one violation of every rule of check_layers.py in a made-up tree and expects it named."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import check_layers


class Tree:
    def __init__(self, root):
        self.root = Path(root)
        (self.root / "src").mkdir()

    def add(self, name, *lines, comment=True):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        opening = ["// A file, its job and its border."] if comment else []
        path.write_text("\n".join([*opening, *lines]) + "\n")

    def include(self, name, *included):
        """A file whose n-th include stands in line n + 1."""
        self.add(name, *[f"#include {i if i.startswith('<') else repr(i).replace(chr(39), chr(34))}"
                         for i in included])

    def violations(self):
        return [self.split(v) for v in check_layers.Checker(self.root).run().violations]

    @staticmethod
    def split(violation):
        name, line, rule, message = violation.split(":", 3)
        return name, int(line), rule.strip(), message


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.tree = Tree(temp.name)
        for folder in check_layers.LAYERS:
            self.tree.add(f"src/{folder}/x.h")
        self.tree.add("include/dsv4/x.h")

    def expect(self, *want):
        """Each of `want` is (file, line, rule); nothing else may be reported."""
        self.assertEqual(sorted(v[:3] for v in self.tree.violations()), sorted(want))

    def test_a_tree_that_keeps_the_rules_is_clean(self):
        self.tree.include("src/numerics/a.cc", "numerics/x.h", "base/x.h", "dsv4/x.h", "<cmath>")
        self.tree.include("src/backends/a.cc", "ops/x.h", "reference/x.h", "cpu/x.h", "cuda/x.h")
        self.tree.include("src/cuda/a.cu", "<cuda_runtime.h>", "<cub/cub.cuh>", "<cuda/ptx>")
        self.tree.include("src/model/a.cc", "<fmt/format.h>", "kv/x.h", "checkpoint/x.h", "io/x.h")
        self.tree.include("src/base/a_test.cc", "testing/x.h", "backends/x.h", "<gtest/gtest.h>")
        self.tree.include("apps/main.cc", "runtime/x.h", "testing/x.h", "cuda/x.h", "cli.h")
        self.tree.add("apps/cli.h")
        self.tree.include("include/dsv4/y.h", "dsv4/x.h", "<cstdint>", "<stdint.h>")
        self.tree.include("python/module.cc", "dsv4/x.h", "<nanobind/nanobind.h>")
        self.expect()

    def test_every_arrow_of_the_table_and_no_other(self):
        # Written out a second time, by hand, so that a slip in the table shows.
        low = "base numerics tensor"
        want = {
            "base": "",
            "numerics": "base",
            "tensor": "base numerics",
            "io": low,
            "checkpoint": f"{low} io",
            "ops": low,
            "reference": f"{low} io checkpoint ops",
            "cpu": f"{low} io checkpoint ops",
            "cuda": f"{low} io checkpoint ops",
            "backends": "ops reference cpu cuda base",
            "comm": f"{low} io checkpoint ops",
            "kv": "ops tensor base",
            "text": "base",
            "model": f"{low} io checkpoint ops backends comm kv",
            "runtime": f"{low} io checkpoint ops backends comm kv text model",
            "quantizer": f"{low} io checkpoint ops backends comm kv text model runtime",
            "server": "base text",
            "testing": " ".join(check_layers.LAYERS),
        }
        self.assertEqual(set(want), set(check_layers.LAYERS))
        for folder, names in want.items():
            with self.subTest(folder):
                self.assertEqual(check_layers.allowed_folders(folder), {folder, *names.split()})

    def test_upward_include(self):
        self.tree.include("src/base/a.h", "dsv4/x.h", "tensor/x.h")
        self.expect(("src/base/a.h", 3, "layer"))

    def test_sideways_includes(self):
        self.tree.include("src/server/a.cc", "runtime/x.h")
        self.tree.include("src/cpu/a.cc", "reference/x.h")
        self.tree.include("src/runtime/a.cc", "cuda/x.h")
        self.tree.include("src/kv/a.cc", "numerics/x.h")
        self.expect(
            ("src/server/a.cc", 2, "layer"),
            ("src/cpu/a.cc", 2, "layer"),
            ("src/runtime/a.cc", 2, "layer"),
            ("src/kv/a.cc", 2, "layer"),
        )

    def test_testing_is_for_tests(self):
        self.tree.include("src/model/a.cc", "testing/x.h")
        self.tree.include("src/model/a_test.cc", "testing/x.h", "backends/x.h")
        self.tree.include("bench/a.cc", "testing/x.h")
        self.tree.include("tests/a_test.cc", "testing/x.h")
        self.expect(("src/model/a.cc", 2, "layer"))

    def test_a_test_may_not_reach_above_its_folder(self):
        self.tree.include("src/ops/a_test.cc", "runtime/x.h", "reference/x.h")
        self.expect(("src/ops/a_test.cc", 2, "layer"), ("src/ops/a_test.cc", 3, "layer"))

    def test_cuda_headers_outside_cuda(self):
        headers = ("<cuda.h> <cuda_runtime.h> <cuda_fp8.h> <cuda/ptx> <cub/cub.cuh> <nvml.h> "
                   "<nv/target> <nvtx3/nvToolsExt.h> <cublasLt.h> <cooperative_groups.h>").split()
        for place in ("src/ops/a.h", "src/ops/a_test.cc", "apps/a.cc", "tests/a_test.cc",
                      "bench/a.cc", "include/dsv4/a.h"):
            with self.subTest(place):
                self.tree.include(place, *headers, "cuda_bf16.h")
                self.expect(*[(place, n + 2, "cuda-header") for n in range(len(headers) + 1)])
                (self.tree.root / place).unlink()

    def test_cuda_source_outside_cuda(self):
        self.tree.add("bench/a.cu")
        self.expect(("bench/a.cu", 1, "cuda-header"))

    def test_own_files_that_look_like_cuda_headers(self):
        self.tree.add("src/numerics/nvfp4.h")
        self.tree.include("src/tensor/a.h", "numerics/nvfp4.h")
        self.tree.include("src/io/a.cc", "<nlohmann/json.hpp>")
        self.expect()

    def test_public_headers_stay_narrow(self):
        self.tree.include("include/dsv4/a.h", "<fmt/format.h>", "base/x.h", "<vector>", "<stdlib.h>",
                          "<unistd.h>")
        self.expect(("include/dsv4/a.h", 2, "public-header"),
                    ("include/dsv4/a.h", 3, "public-header"),
                    ("include/dsv4/a.h", 6, "public-header"))

    def test_python_sees_public_headers_only(self):
        self.tree.include("python/a.cc", "runtime/x.h")
        self.expect(("python/a.cc", 2, "layer"))

    def test_includes_that_lead_nowhere(self):
        self.tree.include("src/base/a.cc", "base/gone.h", "x.h", "../base/x.h", "dsv4/gone.h",
                          "gtest/gtest.h", "base")
        self.expect(*[("src/base/a.cc", n, "unresolved") for n in range(2, 8)])

    def test_own_headers_in_angle_brackets(self):
        self.tree.include("src/io/a.cc", "<base/x.h>", "<dsv4/x.h>")
        self.expect(("src/io/a.cc", 2, "include-form"), ("src/io/a.cc", 3, "include-form"))

    def test_includes_in_comments_do_not_count(self):
        self.tree.add("src/base/a.h", '// #include "tensor/x.h"', "/*", '#include "io/x.h"', "*/",
                      '  #  include "tensor/x.h"  // the real one')
        self.expect(("src/base/a.h", 6, "layer"))

    def test_published_names_outside_checkpoint(self):
        code = ['f("layers.0.attn.wq_a.weight");', "g(1'000, '\"', \"wkv\");", 'h(R"(hc_attn_fn)");',
                'i("no tensor wo_b here");', 'j("attn_sink");', 'k("attn.compressor.ape");']
        self.tree.add("src/model/a.cc", *code)
        self.expect(*[("src/model/a.cc", n, "checkpoint-name") for n in range(2, 8)])

    def test_published_names_where_they_may_stand(self):
        names = 'f("wq_a", "attn_sink", "hc_attn_fn");'
        self.tree.add("src/checkpoint/a.cc", names)
        self.tree.add("src/model/a_test.cc", names)
        self.tree.add("src/testing/a.cc", names)
        # Fields of ours, prose, comments and longer words.
        self.tree.add("src/ops/a.cc", 'f("attn_sink");', 'g("attention: attn_sink is null");')
        self.tree.add("src/model/b.cc", 'f("an ape wrote attn_sink");', "// wq_a", 'g("wkv_rows");',
                      "int wq_a = 1; /* \"wkv\" */", 'h("\\"tape");')
        self.expect()

    def test_a_file_without_its_opening_comment(self):
        self.tree.add("src/base/a.h", "#pragma once", comment=False)
        self.tree.add("src/base/b.h", "", "// too late", comment=False)
        self.tree.add("src/base/c.h", "/* fine */", comment=False)
        self.tree.root.joinpath("src/base/d.h").write_text("")
        self.expect(*[(f"src/base/{n}.h", 1, "opening-comment") for n in "abd"])

    def test_a_header_speaks_for_the_source_of_its_name(self):
        self.tree.add("src/cuda/a.h")
        self.tree.add("src/cuda/a.cc", '#include "cuda/a.h"', comment=False)
        self.tree.add("src/cuda/a.cu", '#include "cuda/a.h"', comment=False)
        self.tree.add("src/cuda/b.cu", '#include "cuda/a.h"', comment=False)
        self.expect(("src/cuda/b.cu", 1, "opening-comment"))

    def test_a_folder_without_a_row(self):
        self.tree.add("src/utils/a.h")
        self.tree.add("src/a.h")
        self.expect(("src/utils/a.h", 1, "unknown-folder"), ("src/a.h", 1, "unknown-folder"))

    def test_length_at_both_boundaries(self):
        for lines, warns, fails in [(400, 0, 0), (401, 1, 0), (800, 1, 0), (801, 0, 1)]:
            with self.subTest(lines=lines):
                self.tree.add("src/base/long.h", *["int x;"] * (lines - 1))
                report = check_layers.Checker(self.tree.root).run()
                self.assertEqual((len(report.warnings), len(report.violations)), (warns, fails))

    def test_a_cycle_even_if_every_arrow_were_allowed(self):
        self.tree.include("src/io/a.h", "checkpoint/x.h")
        self.tree.include("src/checkpoint/a.h", "ops/x.h")
        self.tree.include("src/ops/a.h", "io/x.h")
        rules = [v[2] for v in self.tree.violations()]
        self.assertEqual(rules.count("cycle"), 1)

    def test_the_table_has_no_cycle(self):
        names = list(check_layers.LAYERS)
        for index, folder in enumerate(names[:-1]):
            above = check_layers.allowed_folders(folder) & set(names[index + 1:])
            self.assertEqual(above, set(), folder)

    def test_exit_codes(self):
        def run(root):
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
                return check_layers.main(["--root", str(root)]), out.getvalue()

        self.assertEqual(run(self.tree.root)[0], 0)
        self.tree.include("src/base/a.h", "tensor/x.h")
        code, out = run(self.tree.root)
        self.assertEqual(code, 1)
        self.assertIn("src/base/a.h:2: layer: base/ may not include", out)
        self.assertEqual(run(self.tree.root / "nowhere")[0], 2)


if __name__ == "__main__":
    unittest.main()
