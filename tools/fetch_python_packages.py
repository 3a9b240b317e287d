#!/usr/bin/env python3
"""Installs the packages of a requirements file from PyPI into a folder of their own, for the tests.

    fetch_python_packages.py REQUIREMENTS OUT_DIR

Nothing is installed for the system or the user. Exit status 0: OUT_DIR holds the packages in these
versions, to be put on PYTHONPATH. 3: they could not be downloaded (no pip, no network, no wheels
for this Python).
"""

import argparse
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TIMEOUT_S = 300
SKIPPED = 77  # what ctest takes for a skipped test


def install(requirements, target):
    """Returns None, or a reason in words."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
        "--retries",
        "1",
        "--timeout",
        "10",
        "--no-compile",
        "--target",
        str(target),
        "--requirement",
        str(requirements),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"pip did not finish within {TIMEOUT_S} seconds"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"pip ended with status {done.returncode}"


def fetch(requirements, out_dir):
    """Returns None once `out_dir` holds the packages, or the reason why it does not."""
    wanted = f"{sys.version}\n{pathlib.Path(requirements).read_text(encoding='utf-8')}"
    out_dir = pathlib.Path(out_dir)
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    stamp = out_dir / "requirements.txt"
    # Tests run in parallel: the first fetches, the others wait here and find the folder.
    with open(f"{out_dir}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return None
        with tempfile.TemporaryDirectory(dir=out_dir.parent) as scratch:
            target = pathlib.Path(scratch) / "packages"
            reason = install(requirements, target)
            if reason is not None:
                return reason
            (target / stamp.name).write_text(wanted, encoding="utf-8")
            shutil.rmtree(out_dir, ignore_errors=True)
            os.replace(target, out_dir)
    return None


def import_from(requirements, out_dir):
    """For a test: makes the packages importable, or ends the program as skipped."""
    reason = fetch(requirements, out_dir)
    if reason is not None:
        print(f"skipped: the packages of {requirements} could not be fetched: {reason}")
        sys.exit(SKIPPED)
    sys.path.insert(1, str(out_dir))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("requirements", type=pathlib.Path)
    parser.add_argument("out_dir", type=pathlib.Path)
    options = parser.parse_args()
    reason = fetch(options.requirements, options.out_dir)
    if reason is not None:
        print(f"{options.requirements} could not be installed: {reason}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
