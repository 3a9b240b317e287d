"""Runs gpu_check.sh in a bundle of stubs that behave as the real programs do, on a machine of stubs."""

import fnmatch
import os
import re
import shutil
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "gpu_check.sh"
SOURCES = SCRIPT.parent.parent / "src"
REAL = "bash cat dirname grep head mkdir paste rm sed sort tail timeout wc".split()

PASSES = 'echo "[  PASSED  ] 7 tests."'
SKIPS_AN_OP = """
echo "the op router cannot run: this backend has no such op"
echo "the op mhc_pre cannot run: this backend has no such op"
echo "[  PASSED  ] 5 tests."
echo "[  SKIPPED ] 2 tests, listed below:"
"""
SKIPS_ALL = """
echo "cuda:0 cannot be used: there is no NVIDIA driver (libcuda.so.1)"
echo "[  PASSED  ] 1 test."
echo "[  SKIPPED ] 9 tests, listed below:"
"""
FAILS = """
echo "[  PASSED  ] 5 tests."
echo "[  FAILED  ] 2 tests, listed below:"
echo "[  FAILED  ] Router/cuda.Clamps"
exit 1
"""
CRASHES = 'echo "terminate called"; exit 134'
BENCH = """
while (($#)); do [[ $1 == --csv ]] && csv=$2; shift; done
printf 'op,us\\ncopy,1\\ncopy,2\\n' >"$csv"
"""
PYTHON_WITHOUT_TORCH = "exit 1"
PYTHON = """
[[ $1 == -c ]] && exit
[[ $1 == gpu_peers.py && $2 == --csv ]] && printf 'grouped_gemm,3\\n' >>"$3"
"""
# Runs what it is given and counts an error of its own for racecheck.
SANITIZER = """
tool=$2; shift 4
"$@" || exit
[[ $tool != racecheck ]] || { echo "RACECHECK SUMMARY: 1 hazard"; exit 9; }
"""


def tests_of(program):
    """Names of the tests in the sources of cuda_test, or of those of ops_test on cuda."""
    if program == "cuda_test":
        files = [*SOURCES.glob("cuda/**/*_test.cc"), *SOURCES.glob("cuda/**/*_test.cu")]
        form, name = r"^TEST(?:_F)?\((\w+), (\w+)\)", "{}.{}"
    else:
        files, form, name = SOURCES.glob("ops/*_test.cc"), r"^TEST_EACH_BACKEND\((\w+),\s+(\w+)\)", "{}/cuda.{}"
    return [name.format(*test) for file in files for test in re.findall(form, file.read_text(), re.MULTILINE)]


def chosen(gtest_filter, tests):
    """The tests that GoogleTest runs under a filter, and its patterns that fit none of all."""
    wanted, _, unwanted = gtest_filter.removeprefix("--gtest_filter=").partition("-")
    fits = lambda test, patterns: any(fnmatch.fnmatchcase(test, p) for p in patterns.split(":"))
    patterns = [p for p in f"{wanted or '*'}:{unwanted}".split(":") if p]
    idle = [p for p in patterns if not any(fnmatch.fnmatchcase(test, p) for test in tests)]
    return {test for test in tests if fits(test, wanted or "*") and not fits(test, unwanted)}, idle


class GpuCheck(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.root = Path(root.name)
        self.bundle = self.root / "gpu bundle"  # a space, on purpose
        self.bin = self.root / "bin"
        for folder in (self.bundle, self.bin):
            folder.mkdir()
        for name in REAL:
            (self.bin / name).symlink_to(shutil.which(name))
        shutil.copy(SCRIPT, self.bundle)
        (self.bundle / "commit").write_text("abc\n")
        self.stub(self.bundle / "cuda_test", PASSES)
        self.stub(self.bundle / "ops_test", SKIPS_AN_OP)
        self.stub(self.bundle / "dsv4_bench", BENCH)
        self.stub(self.bin / "compute-sanitizer", 'shift 4; "$@"')
        self.stub(self.bin / "python3", PYTHON_WITHOUT_TORCH)

    def stub(self, path, body):
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def check(self, *arguments):
        """Returns (exit code, stdout, {(part, what): [passed, failed, skipped, note]})."""
        result = subprocess.run(
            [self.bundle / "gpu_check.sh", *arguments],
            cwd=self.root,
            env={"PATH": str(self.bin), "CUDA_HOME": str(self.root / "no toolkit")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        rows = {}
        _, _, table = result.stdout.partition("\npart ")
        for line in table.splitlines()[1:-1]:
            words = [line[:10].strip(), line[11:45].strip(), *line[45:70].split()]
            rows[tuple(words[:2])] = [*words[2:], line[71:].strip()]
        return result.returncode, result.stdout, rows

    def test_a_sound_machine_passes_and_skipped_ops_are_named(self):
        code, out, rows = self.check()
        self.assertEqual(code, 0, out)
        self.assertEqual(rows["test", "cuda_test"], ["7", "0", "0", ""])
        self.assertEqual(rows["test", "ops_test"], ["5", "0", "2", "no mhc_pre, router"])
        self.assertEqual(rows["sanitizer", "synccheck ops_test"], ["5", "0", "2", "no mhc_pre, router"])
        without = "without the expert GEMMs, see docs/kernels/moe.md"
        self.assertEqual(rows["sanitizer", "racecheck ops_test"][3], "no mhc_pre, router; " + without)
        self.assertEqual(rows["sanitizer", "racecheck cuda_test"], ["7", "0", "0", without])
        self.assertEqual(rows["bench", "dsv4_bench"][:3], ["2", "0", "0"])
        self.assertEqual(rows["bench", "gpu_peers.py"], ["0", "0", "1", "PyTorch is not installed"])
        self.assertEqual(len(rows), 10)
        self.assertTrue(out.endswith("gpu_check: all is well\n"))
        self.assertTrue((self.root / "gpu-check-out" / "test-cuda_test.log").is_file())

    def test_peers_are_measured_where_pytorch_is(self):
        self.stub(self.bin / "python3", PYTHON)
        code, _, rows = self.check("--only", "bench")
        self.assertEqual(code, 0)
        self.assertEqual(rows["bench", "dsv4_bench"][0], "2")
        self.assertEqual(rows["bench", "gpu_peers.py"][:3], ["1", "0", "0"])
        self.stub(self.bin / "python3", "[[ $1 == -c ]] && exit; echo out of memory; exit 1")
        code, _, rows = self.check("--only", "bench")
        self.assertEqual(code, 1)
        self.assertEqual(rows["bench", "gpu_peers.py"][3], "exit code 1: out of memory")

    def test_failures_crashes_and_silence_fail(self):
        for body, row in (
            (FAILS, ["5", "2", "0", "[  FAILED  ] Router/cuda.Clamps"]),
            (CRASHES, ["0", "1", "0", "exit code 134: terminate called"]),
            ("exit 0", ["0", "1", "0", "no test ran"]),
            (PASSES + "; exit 1", ["7", "1", "0", 'exit code 1: [  PASSED  ] 7 tests.']),
        ):
            with self.subTest(body=body):
                self.stub(self.bundle / "ops_test", body)
                code, out, rows = self.check("--only", "tests")
                self.assertEqual(code, 1)
                self.assertEqual(rows["test", "ops_test"], row)
                self.assertEqual(rows["test", "cuda_test"], ["7", "0", "0", ""])
                self.assertIn("gpu_check: failed", out)

    def test_skipping_for_want_of_a_device_fails(self):
        self.stub(self.bundle / "cuda_test", SKIPS_ALL)
        code, _, rows = self.check("--only", "tests")
        self.assertEqual(code, 1)
        self.assertEqual(rows["test", "cuda_test"][:3], ["1", "9", "0"])
        self.assertIn("no NVIDIA driver", rows["test", "cuda_test"][3])

    def test_what_a_sanitizer_finds_fails(self):
        self.stub(self.bin / "compute-sanitizer", SANITIZER)
        code, _, rows = self.check("--only", "sanitizer")
        self.assertEqual(code, 1)
        self.assertEqual(rows["sanitizer", "racecheck cuda_test"][1], "1")
        self.assertIn("1 hazard", rows["sanitizer", "racecheck cuda_test"][3])
        self.assertEqual(rows["sanitizer", "memcheck cuda_test"][1], "0")

    def test_outside_of_a_bundle_it_says_where_to_run_it(self):
        (self.bundle / "cuda_test").unlink()
        code, _, rows = self.check()
        self.assertEqual((code, rows), (2, {}))
        self.assertFalse((self.root / "gpu-check-out").exists())

    def test_a_missing_sanitizer_and_a_failing_benchmark_fail(self):
        (self.bin / "compute-sanitizer").unlink()
        self.stub(self.bundle / "dsv4_bench", "echo it does not agree; exit 1")
        code, _, rows = self.check("--only", "sanitizer", "--only", "bench")
        self.assertEqual(code, 1)
        self.assertEqual(rows["sanitizer", "compute-sanitizer"][1], "1")
        self.assertEqual(rows["bench", "dsv4_bench"][3], "exit code 1: it does not agree")

    def test_the_sanitizers_cases_can_be_chosen(self):
        for program in ("ops_test", "cuda_test"):
            self.stub(self.bundle / program, f'echo "$1" >>"{self.root}/{program}.filters"; {PASSES}')
        self.assertEqual(self.check("--only", "sanitizer", "--sanitizer-filter", "Rope/cuda.*")[0], 0)
        self.assertEqual(self.check("--only", "sanitizer")[0], 0)
        filters = (self.root / "ops_test.filters").read_text().splitlines()
        default = "--gtest_filter=*/cuda.*-ExpertGemm/*:ExpertGemmBits/*"
        # racecheck leaves all expert GEMMs out.
        self.assertEqual(filters, ["--gtest_filter=Rope/cuda.*"] * 3 + [default, default + ":ExpertGemm*", default])
        memcheck, racecheck, synccheck = (self.root / "cuda_test.filters").read_text().splitlines()[3:]
        self.assertEqual((racecheck, synccheck), (memcheck + ":ExpertGemm*", memcheck))

    # A test that is renamed must not come under the sanitizers, or escape them, unnoticed.
    def test_the_filters_fit_the_tests_there_are(self):
        for program in ("ops_test", "cuda_test"):
            self.stub(self.bundle / program, f'echo "$*" >>"{self.root}/{program}.filters"; {PASSES}')
        self.assertEqual(self.check("--only", "tests", "--only", "sanitizer")[0], 0)
        all_tests = {program: tests_of(program) for program in ("ops_test", "cuda_test")}
        runs = {program: (self.root / f"{program}.filters").read_text().splitlines() for program in all_tests}
        self.assertEqual((runs["cuda_test"][0], runs["ops_test"][0]), ("", "--gtest_filter=*/cuda.*"))
        for program, tests in all_tests.items():
            self.assertGreater(len(tests), 40)
            self.assertEqual(len(runs[program]), 4)
            ran = []
            for gtest_filter in runs[program][1:]:
                tests_run, idle = chosen(gtest_filter, tests)
                self.assertEqual(idle, [], gtest_filter)
                ran.append({test.partition(".")[0] for test in tests_run})
            memcheck, racecheck, synccheck = ran
            self.assertEqual(memcheck, synccheck)
            left_out = {suite for suite in memcheck - racecheck if not suite.startswith("ExpertGemm")}
            self.assertEqual(left_out, set())
            without = {suite for test in tests if (suite := test.partition(".")[0]) not in memcheck}
            if program == "ops_test":
                self.assertEqual(without, {"ExpertGemm/cuda", "ExpertGemmBits/cuda"})
            else:
                self.assertEqual(without, {"CudaHeaders", "ExpertGemmSizeTest", "LaunchDeathTest"})
                refused = [t for t in tests if re.search("Refused|TooMuch|NotThere", t)]
                self.assertEqual(set(refused) & chosen(runs[program][1], tests)[0], set())

    def test_programs_get_their_options_and_limits(self):
        log = f'echo "$*" >>"{self.root}/log"\n'
        self.stub(self.bundle / "dsv4_bench", log + BENCH)
        (self.bin / "timeout").unlink()
        self.stub(self.bin / "timeout", log + 'shift; "$@"')
        self.assertEqual(self.check("--bench-filter", "gate up")[0], 0)
        csv = self.root / "gpu-check-out" / "bench.csv"
        limits = ["600 ./cuda_test", "600 ./ops_test"]
        for tool in ("memcheck", "racecheck", "synccheck"):
            # Without an exit code of its own the sanitizer passes whatever it finds.
            limits += [f"1800 compute-sanitizer --tool {tool} --error-exitcode 9 ./{program}"
                       for program in ("cuda_test", "ops_test")]
        lines = [line.partition(" --gtest_filter")[0] for line in (self.root / "log").read_text().splitlines()]
        self.assertEqual(lines, [*limits, f"--device cuda --commit abc --csv {csv} --filter gate up"])

    def test_rows_of_an_earlier_run_do_not_count(self):
        for _ in range(2):
            code, _, rows = self.check("--only", "bench")
            self.assertEqual((code, rows["bench", "dsv4_bench"][0]), (0, "2"))

    def test_what_takes_longer_than_the_limit_is_stopped_and_fails(self):
        self.stub(self.bundle / "ops_test", f"exec {shutil.which('sleep')} 30")
        code, _, rows = self.check("--only", "tests", "--limit", "1")
        self.assertEqual(code, 1)
        self.assertEqual(rows["test", "ops_test"], ["0", "1", "0", "stopped after 1 s"])
        self.assertEqual(rows["test", "cuda_test"][:2], ["7", "0"])

    def test_bad_usage_is_2(self):
        for arguments in (
            ["--frobnicate"], ["--only", "luck"], ["--only"], ["--out"], ["--sanitizer-filter"],
            ["--limit"], ["--limit", "0"], ["--limit", "1m"], ["--limit", ""],
        ):
            self.assertEqual(self.check(*arguments)[0], 2, arguments)


if __name__ == "__main__":
    unittest.main()
