"""What contenders in Python do alike: they wait for the word, visit the section, and say how often.

    PROGRAM contend URL KEY SECONDS JOURNAL HOLD_MS
    PROGRAM hold URL KEY

Both print a line of JSON when they are ready, read a line, and print another at the end. Who holds has the lock when
it is ready, and gives it back after the line.
"""

import json
import os
import random
import sys
import time

# Long enough that no lock of a contender runs out, whatever the machine does meanwhile.
TTL_SECONDS = 20


def pause():
    """Between two tries, in seconds."""
    return random.uniform(0.005, 0.02)


class Contender:
    def __init__(self, name, version):
        self.name, self.version = name, version
        self.verb, self.url, self.key = sys.argv[1:4]
        if self.verb == "contend":
            self.seconds, self.hold = float(sys.argv[4]), float(sys.argv[6]) / 1000
            self.journal = os.open(sys.argv[5], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.visits = 0

    def ready(self):
        print(json.dumps({"client": self.name, "version": self.version}), flush=True)
        sys.stdin.readline()
        if self.verb == "contend":
            self.until = time.monotonic() + self.seconds

    def goes_on(self):
        return time.monotonic() < self.until

    def write(self, sign):
        os.write(self.journal, f"{sign} {self.name} {os.getpid()}\n".encode())

    def enter(self):
        self.visits += 1
        self.write("+")

    def leave(self):
        self.write("-")

    def finish(self):
        print(json.dumps({"acquired": self.visits}), flush=True)

    def run(self, acquire):
        """Does all of it; `acquire` gives how to release, or nothing when somebody else holds it."""
        if self.verb == "hold":
            release = acquire()
            assert release, "it was to be free"
            self.visits += 1
            self.ready()
            release()
        else:
            self.ready()
            while self.goes_on():
                release = acquire()
                if release:
                    self.enter()
                    time.sleep(self.hold)
                    self.leave()
                    release()
                time.sleep(pause())
        self.finish()
