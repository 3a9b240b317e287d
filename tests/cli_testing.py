"""What the tests of the program dsv4 share: where it and its data are, running it, and checking how
it ended. A test file is called as

    X_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, SOURCE = sys.argv[1], Path(sys.argv[2])
NANO = SOURCE / "models" / "nano"
EOS = "<｜end▁of▁sentence｜>"
DONE, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130
TIMEOUT_S = 1500  # only against hanging; ctest has the limit


def run(*arguments, stdin=b"", **kwargs):
    if isinstance(stdin, str):
        stdin = stdin.encode()
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, timeout=TIMEOUT_S, **kwargs
    )


def load_tests(loader, standard_tests, pattern):
    """All but slow classes, which run when they are named. For test files to import."""
    suite = unittest.TestSuite()
    for tests in standard_tests:
        suite.addTests(test for test in tests if not test.slow)
    return suite


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])


class CliTest(unittest.TestCase):
    slow = False

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def copy_of_nano(self, without=()):
        model = self.folder / "model"
        model.mkdir()
        for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]:
            if name not in without:
                shutil.copy(NANO / name, model / name)
        return model

    def expect_done(self, result):
        self.assertEqual(result.returncode, DONE, result.stderr.decode())
        return result.stdout.decode()

    def expect_error(self, result, exit_code, *parts):
        """One line on stderr that holds `parts`, and nothing on stdout."""
        message = result.stderr.decode()
        self.assertEqual(result.returncode, exit_code, message)
        self.assertEqual(result.stdout, b"")
        self.assertEqual(message.count("\n"), 1, message)
        self.assertTrue(message.startswith("dsv4: "), message)
        for part in parts:
            self.assertIn(part, message)
