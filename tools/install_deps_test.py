"""Runs install_deps.sh on made-up machines: a PATH of stubs, never the real package manager."""

import shutil
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "install_deps.sh"
LIBRARIES = (
    "libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libpcre2-dev libhwy-dev libedit-dev "
    "libxxhash-dev libgtest-dev libgmock-dev"
).split()
# What the script itself runs, taken from the real machine.
REAL = "bash grep tail mktemp rm env sleep cat".split()


class Machine:
    """A directory used as the whole PATH. apt-get logs its arguments and can install things."""

    def __init__(self, root):
        self.bin = Path(root) / "bin dir"  # a space, on purpose
        self.bin.mkdir()
        self.log = Path(root) / "log"
        self.log.write_text("")
        self.installed = Path(root) / "installed"
        for name in REAL:
            (self.bin / name).symlink_to(shutil.which(name))
        for name in "make ninja ccache pkg-config python3 ctest".split():
            self.stub(name, "exit 0")
        self.stub("cmake", "echo cmake version 3.25.1")
        self.stub("c++", 'case $1 in -dumpversion) echo 12;; *) echo "g++ (Debian)";; esac')
        self.stub("id", "echo 0")
        # As dpkg-query does: prints what it knows, exits 1 if it missed anything.
        self.stub(
            "dpkg-query",
            'echo "dpkg-query" >>"$LOG"; rc=0; shift 3; for p; do '
            'if grep -qx "$p" "$INSTALLED"; then echo "$p installed"; else rc=1; fi; done; exit $rc',
        )
        self.stub(
            "apt-get",
            'echo "apt-get $DEBIAN_FRONTEND $*" >>"$LOG"\n'
            'for a; do case $a in lib*|nlohmann*) echo "$a" >>"$INSTALLED";; esac; done',
        )
        self.have(*LIBRARIES)

    def stub(self, name, body):
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def remove(self, name):
        (self.bin / name).unlink()

    def have(self, *packages):
        self.installed.write_text("".join(p + "\n" for p in packages))

    def run(self, *args, **env):
        result = subprocess.run(
            [shutil.which("bash"), str(SCRIPT), *args],
            env={
                "PATH": str(self.bin),
                "LOG": str(self.log),
                "INSTALLED": str(self.installed),
                "DSV4_APT_RETRY_SECONDS": "0",
                **env,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.calls = self.log.read_text().splitlines()
        return result

    def apt_calls(self):
        return [c for c in self.calls if c.startswith("apt-get")]


class InstallDepsTest(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.machine = Machine(temp.name)

    def test_nothing_missing_asks_dpkg_once_and_never_apt(self):
        result = self.machine.run()
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertEqual(self.machine.calls, ["dpkg-query"])

    def test_installs_exactly_the_missing_libraries_without_questions(self):
        self.machine.have(*[p for p in LIBRARIES if p not in ("libfmt-dev", "libgmock-dev")])
        result = self.machine.run()
        self.assertEqual(result.returncode, 0, result.stderr)
        update, install = self.machine.apt_calls()
        self.assertIn("noninteractive", update)
        self.assertTrue(update.endswith(" update"), update)
        self.assertTrue(
            install.endswith(" install -y --no-install-recommends libfmt-dev libgmock-dev"), install
        )

    def test_a_removed_package_is_missing(self):
        self.machine.stub(
            "dpkg-query",
            'shift 3; for p; do s=installed; [ $p = libfmt-dev ] && s=config-files; echo "$p $s"; done',
        )
        result = self.machine.run("--dry-run")
        self.assertIn("missing: libfmt-dev\n", result.stdout)

    def test_a_package_of_two_architectures_is_present(self):
        self.machine.stub(
            "dpkg-query", 'shift 3; for p; do echo "$p installed"; echo "$p installed"; done'
        )
        self.assertEqual(self.machine.run().returncode, 0)

    def test_dry_run_installs_nothing(self):
        self.machine.have()
        result = self.machine.run("--dry-run")
        self.assertEqual(result.returncode, 0)
        self.assertIn("would run: apt-get update && apt-get install", result.stdout)
        self.assertEqual(self.machine.apt_calls(), [])

    def test_each_missing_program_names_its_package(self):
        for program, package in [
            ("make", "make"),
            ("c++", "g++"),
            ("cmake", "cmake"),
            ("ctest", "cmake"),
            ("ninja", "ninja-build"),
            ("ccache", "ccache"),
            ("pkg-config", "pkg-config"),
            ("python3", "python3"),
        ]:
            with self.subTest(program):
                content = (self.machine.bin / program).read_text()
                self.machine.remove(program)
                result = self.machine.run("--dry-run")
                self.assertIn(f"missing: {package}\n", result.stdout)
                (self.machine.bin / program).write_text(content)
                (self.machine.bin / program).chmod(0o755)

    def test_versions_at_the_boundary(self):
        for version, enough in [
            ("3.24.9", False),
            ("3.25.0", True),
            ("3.25", True),
            ("4.0.0-rc1", True),
            ("2.99.1", False),
            ("", False),
        ]:
            with self.subTest(cmake=version):
                self.machine.stub("cmake", f"echo cmake version {version}")
                missing = "missing: cmake" in self.machine.run("--dry-run").stdout
                self.assertEqual(missing, not enough)

    def test_compiler_versions_at_the_boundary(self):
        for name, version, enough in [
            ("g++", "11", False),
            ("g++", "12", True),
            ("g++", "13.2.0", True),
            ("clang", "13.0.1", False),
            ("clang", "14.0.6", True),
        ]:
            with self.subTest(name + version):
                self.machine.stub(
                    "my cxx", f"case $1 in -dumpversion) echo {version};; *) echo {name};; esac"
                )
                result = self.machine.run("--dry-run", CXX="my cxx")
                self.assertEqual("missing: g++" in result.stdout, not enough)

    def test_tests_need_pip_and_programs_do_not(self):
        self.machine.stub("python3", "exit 1")
        self.assertEqual(self.machine.run().returncode, 0)
        self.assertIn("missing: python3-pip\n", self.machine.run("--test", "--dry-run").stdout)

    def test_dev_adds_the_second_compiler_and_the_formatter(self):
        result = self.machine.run("--dev", "--dry-run")
        self.assertIn("missing: clang clang-format-14\n", result.stdout)
        self.machine.stub("clang++", "exit 0")
        self.machine.stub("clang-format-14", "exit 0")
        self.assertEqual(self.machine.run("--dev", "--dry-run").stdout, "")

    def test_another_version_of_the_formatter_is_not_the_one_that_lint_takes(self):
        self.machine.stub("clang++", "exit 0")
        for version, enough in [("18.1.3", False), ("14.0.6", True)]:
            with self.subTest(version):
                self.machine.stub("clang-format", f"echo Debian clang-format version {version}")
                missing = "missing: clang-format-14" in self.machine.run("--dev", "--dry-run").stdout
                self.assertEqual(missing, not enough)

    def test_fuzz_adds_the_compiler_of_the_preset_and_its_runtime(self):
        result = self.machine.run("--fuzz", "--dry-run")
        self.assertIn("missing: clang-14 libclang-rt-14-dev\n", result.stdout)
        self.machine.stub("clang++-14", "exit 0")
        self.machine.have(*LIBRARIES, "libclang-rt-14-dev")
        self.assertEqual(self.machine.run("--fuzz", "--dry-run").stdout, "")

    def test_uses_sudo_when_it_needs_no_password(self):
        self.machine.have()
        self.machine.stub("id", "echo 1000")
        self.machine.stub("sudo", '[ "$1" = -n ] || exit 9; shift; unset DEBIAN_FRONTEND; "$@"')
        self.machine.stub("true", "exit 0")
        result = self.machine.run()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(self.machine.apt_calls()), 2)
        self.assertIn("noninteractive", self.machine.apt_calls()[1])

    def test_without_root_or_sudo_prints_the_command(self):
        self.machine.have(*LIBRARIES[1:])
        self.machine.stub("id", "echo 1000")
        for sudo in (None, "exit 1"):
            with self.subTest(sudo=sudo):
                if sudo:
                    self.machine.stub("sudo", sudo)
                result = self.machine.run()
                self.assertEqual(result.returncode, 1)
                self.assertIn(
                    "  sudo apt-get update && "
                    "sudo apt-get install -y --no-install-recommends libfmt-dev\n",
                    result.stderr,
                )
                self.assertEqual(self.machine.apt_calls(), [])

    def test_one_failure_is_tried_again(self):
        self.machine.have()
        real = (self.machine.bin / "apt-get").read_text().split("\n", 1)[1]
        self.machine.stub(
            "apt-get", f'if [ ! -e "$LOG.failed" ]; then : >"$LOG.failed"; exit 100; fi\n{real}'
        )
        result = self.machine.run()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("trying once more", result.stderr)

    def test_two_failures_show_what_apt_said_and_fail(self):
        self.machine.have()
        self.machine.stub("apt-get", "echo 'E: no route'; echo apt-get >>\"$LOG\"; exit 100")
        result = self.machine.run()
        self.assertEqual(result.returncode, 1)
        self.assertIn("E: no route", result.stderr)
        self.assertEqual(len(self.machine.apt_calls()), 2)  # update only, twice

    def test_a_package_that_does_not_help_is_an_error(self):
        self.machine.stub("cmake", "echo cmake version 3.22.1")
        result = self.machine.run()
        self.assertEqual(result.returncode, 1)
        self.assertIn("still missing or too old on PATH: cmake\n", result.stderr)

    def test_other_systems(self):
        self.machine.remove("dpkg-query")
        self.machine.remove("apt-get")
        result = self.machine.run()
        self.assertEqual(result.returncode, 0)
        self.assertIn("left to CMake", result.stdout)
        self.machine.remove("ninja")
        result = self.machine.run()
        self.assertEqual(result.returncode, 1)
        self.assertIn("missing: ninja-build", result.stderr)

    def test_unknown_argument_is_bad_usage(self):
        self.assertEqual(self.machine.run("--yes").returncode, 2)


if __name__ == "__main__":
    unittest.main()
