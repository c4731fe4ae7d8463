"""Runs `rollgate runner` for tests: a runner file, the process, its log, and small agents and scorers in plain
Python."""
import json
import os
import signal
import subprocess
import sys

import gateway as g

# An agent: makes one model call over the attempt's own URL, then does what the task's input says.
AGENT = """
import json, os, sys, time, urllib.request
def chat(text):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    return json.load(urllib.request.urlopen(request, timeout=30))["choices"][0]["message"]["content"]
task = json.load(open(os.environ["ROLLGATE_INPUT"]))
"""


class Runner:
    """runners: the `runners` of the file as a dictionary (JSON is YAML)."""

    def __init__(self, gateway, runners, **options):
        self.gateway = gateway
        self.folder = f"{gateway.folder}/runner-{os.urandom(4).hex()}"
        os.mkdir(self.folder)
        self.file = f"{self.folder}/runners.yaml"
        with open(self.file, "w") as f:
            json.dump({"runners": runners}, f)
        self.options = {"runners": self.file, "gateway": gateway.url, "logs": f"{self.folder}/logs",
                        "work-dir": f"{self.folder}/work", "grace": "5s", **options}
        self.env = dict(os.environ)
        self.process = None

    def start(self):
        self.log_file = open(f"{self.folder}/log", "ab")
        self.process = subprocess.Popen(
            [str(g.BINARY), "runner", *[f"--{k}={v}" for k, v in self.options.items()]],
            stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=self.log_file, env=self.env)
        g.wait_until(lambda: "executor runs" in self.log() or self.process.poll() is not None, 20, "the executor runs")
        assert self.process.poll() is None, self.log()
        return self

    __enter__ = start

    def __exit__(self, kind, *_):
        status = self.stop()
        if kind is None:
            assert status == 0, self.log()
            assert not g.SANITIZER.search(self.log()), self.log()
            assert os.listdir(f"{self.folder}/work") == []

    def stop(self, timeout=30):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise AssertionError(f"the executor does not end:\n{self.log()}") from None
        finally:
            self.log_file.close()

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def attempt_log(self, name):
        with open(f"{self.folder}/logs/{name}.log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def work_folders(self):
        return os.listdir(f"{self.folder}/work")


def script(folder, name, text, agent=True):
    """Writes a Python script. Returns the command line that runs it."""
    path = f"{folder}/{name}.py"
    with open(path, "w") as f:
        f.write((AGENT if agent else "") + text)
    return [sys.executable, "-S", "-E", path] if not agent else [sys.executable, path]


def processes_with(word):
    """Returns the living processes whose command line contains the word."""
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    line = f.read()
            except OSError:
                continue
            if word.encode() in line and g.alive(int(pid)):
                found.append(int(pid))
    return found
