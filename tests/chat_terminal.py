"""A program on a terminal, for the tests of dsv4 chat: a pseudo-terminal that types and reads."""

import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from cli_testing import TIMEOUT_S

# At the end of what was written, in a line of its own.
PROMPT = re.compile(rb"(?<![^\n])(?:> |\.\.\. |result of [^\n]*> )$")


class Terminal:
    """Starts `command` as a session of its own. Use as a context; leaving it kills the program."""

    def __init__(self, command, cwd, home, columns=200, stdout=None, **environment):
        self.output = b""  # all of it, as the terminal got it
        self.seen = 0  # bytes of it that expect() has passed
        self.pid, self.leader = pty.fork()
        if self.pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
                if stdout is not None:
                    os.dup2(stdout, 1)
                os.chdir(cwd)
                path = {"PATH": os.environ["PATH"], "HOME": str(home)}
                os.execve(command[0], [str(word) for word in command], {**path, **environment})
            finally:
                os._exit(127)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        os.close(self.leader)

    def read(self, seconds):
        """One piece of output; empty if there is none for so long or the program has ended."""
        if not select.select([self.leader], [], [], seconds)[0]:
            return b""
        try:
            piece = os.read(self.leader, 65536)
        except OSError as error:  # what Linux says once nobody has the terminal open
            if error.errno != errno.EIO:
                raise
            piece = b""
        self.output += piece
        return piece

    def expect(self, pattern):
        """Reads until `pattern` is found after what was found before; returns the text up to it."""
        pattern = re.compile(pattern) if isinstance(pattern, bytes) else pattern
        deadline = time.monotonic() + TIMEOUT_S
        while not (match := pattern.search(self.output, self.seen)):
            if not self.read(deadline - time.monotonic()):
                raise AssertionError(f"no {pattern.pattern} after {self.output[self.seen:]}")
        text = self.output[self.seen : match.end()]
        self.seen = match.end()
        return text

    def next_prompt(self):
        """Everything up to the next prompt, which enter() will look for, too."""
        text = self.expect(PROMPT)
        self.seen = self.output.rindex(b"\n") + 1
        return text

    def type(self, data):
        os.write(self.leader, data if isinstance(data, bytes) else data.encode())

    def enter(self, line):
        self.expect(PROMPT)
        self.type(line + "\r")

    def is_cooked(self):
        flags = termios.tcgetattr(self.leader)[3]
        return bool(flags & termios.ECHO) and bool(flags & termios.ICANON)

    def set_cooked(self):
        attributes = termios.tcgetattr(self.leader)
        attributes[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(self.leader, termios.TCSANOW, attributes)

    def becomes(self, cooked):
        deadline = time.monotonic() + TIMEOUT_S
        while self.is_cooked() != cooked and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.is_cooked() == cooked

    def wait(self):
        """The exit code, after reading all output; -N: ended by signal N."""
        while self.read(TIMEOUT_S):
            pass
        status = os.waitpid(self.pid, 0)[1]
        self.pid = 0
        return os.waitstatus_to_exitcode(status)
