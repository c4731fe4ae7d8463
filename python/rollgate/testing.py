"""A real gateway for tests of agents and trainers, with an engine whose answers the test writes.

    with gateway(["Hello.", "Bye."]) as g:
        session = g.client.create_session()
        session.chat([{"role": "user", "content": "Hi"}])       # Hello.
        g.engine.requests[0].prompt_ids

With pytest the fixtures `rollgate_gateway` and `rollgate_engine` do so (pytest_plugin.py).
"""
from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Iterator, Optional, Union

from .client import Client
from .errors import RollgateError
from .scripted import Answer, Answers, Request, ScriptedEngine

__all__ = ["Answer", "Gateway", "Request", "ScriptedEngine", "find_binary", "gateway"]

STARTS = 5      # attempts: another program may take the port first
TAKEN, SERVES = "Address already in use", " serving listen="
# waits for the end of its standard input: of this process, however it dies. Then it ends the gateway and removes its state
WATCH = 'read -r _; kill "$0"; i=0; while [ $i -lt 900 ] && kill -0 "$0"; do i=$((i+1)); sleep 0.1; done; rm -rf "$1"'


def find_binary() -> str:
    """Returns the gateway's program: ROLLGATE, else `rollgate` on the path, else the build of this checkout. Raises
    FileNotFoundError if there is none."""
    build = Path(__file__).resolve().parents[2] / "build"
    for path in (os.environ.get("ROLLGATE"), shutil.which("rollgate"), build / "release/rollgate", build / "dev/rollgate"):
        if path and os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError("no rollgate is found: set ROLLGATE to the program, or put it on the path")


def settings_flags(settings: dict[str, Any]) -> list[str]:
    """Converts settings by name to flags: sink=[...] is repeated, True and False become on and off. Raises ValueError
    for a setting without a value."""
    out = []
    for name, value in settings.items():
        if value is None:
            raise ValueError(f"{name} is None: leave it out for its default")
        for one in value if isinstance(value, list) else [value]:
            text = {True: "on", False: "off"}[one] if isinstance(one, bool) else one
            out.append(f"--{name.replace('_', '-')}={text}")
    return out


class Gateway:
    """A running gateway with its own state and port. Settings are those of docs/settings.md by name: workers=2,
    tool_parser="hermes".

    engine: a scripted one, or the setting of a different one ("builtin:echo"). `client` is its Client, `url` its
    address, `engine` the scripted engine. `log()` returns its log, `errors()` the lines of warnings and errors.
    RuntimeError with the log: it does not serve."""

    def __init__(self, engine: Union[ScriptedEngine, str], *, binary: Optional[str] = None, **settings: Any):
        self.binary, self.engine = binary or find_binary(), engine if isinstance(engine, ScriptedEngine) else None
        given = {"engine": engine.setting if isinstance(engine, ScriptedEngine) else engine, "workers": 1, "routers": 1, "grace": "5s", **settings}
        for name in ("listen", "state_dir"):
            if name in settings:
                raise ValueError(f"{name}={settings[name]!r}: a gateway of a test has its own {name}")
        self._flags = settings_flags(given)
        self.folder = tempfile.mkdtemp(prefix="rollgate-test-")
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._watch: Optional[subprocess.Popen[bytes]] = None

    def __enter__(self) -> "Gateway":
        try:
            for last in range(STARTS - 1, -1, -1):
                if self._starts(last == 0):
                    break
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]) -> None:
        status, text = self.stop()
        if status:
            told = f"the gateway ended with status {status}:\n{text[-4000:]}"
            if error is None:
                raise RuntimeError(told)
            error.add_note(told)

    def _starts(self, is_last: bool) -> bool:
        """Starts the gateway. Returns False if the port was taken, and more attempts are allowed."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{s.getsockname()[1]}"
        command = [self.binary, "serve", f"--listen={self.url.removeprefix('http://')}", f"--state-dir={self.folder}/state", *self._flags]
        with open(f"{self.folder}/log", "wb") as f:
            self._process = subprocess.Popen(command, stdout=f, stderr=f, stdin=subprocess.DEVNULL)
        self._watch_over(self._process.pid)
        self.client = Client(self.url)
        probe = Client(self.url, retry_s=0)
        until = time.monotonic() + 60
        with contextlib.closing(probe):
            while self._process.poll() is None and time.monotonic() < until:
                with contextlib.suppress(RollgateError):
                    if SERVES in self.log():        # otherwise a different gateway may have the port, and answer
                        probe.ready()
                        return True
                time.sleep(0.01)
        if TAKEN in self.log() and not is_last:
            return False
        raise RuntimeError(f"the gateway does not serve: {' '.join(command)}\n{self.log()[-4000:]}")

    def _watch_over(self, pid: Optional[int]) -> None:
        """Starts a process that ends the gateway together with this process, even if that one is killed. None: ends
        the watch."""
        old, self._watch = self._watch, None
        if old is not None:
            old.kill()
            old.communicate()
        if pid is not None:
            self._watch = subprocess.Popen(["/bin/sh", "-c", WATCH, str(pid), self.folder], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL, start_new_session=True)

    def log(self) -> str:
        """Returns the whole log."""
        path = Path(f"{self.folder}/log")
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def errors(self) -> list[str]:
        """Returns the log's lines of level warn and error."""
        return [line for line in self.log().splitlines() if line.split(" ")[1:2] in (["warn"], ["error"])]

    def stop(self) -> tuple[int, str]:
        """Ends the gateway (SIGTERM, and SIGKILL after a minute) and removes its state. Returns (exit status, log). A
        second call does nothing."""
        process, self._process = self._process, None
        status = 0
        if process is not None:
            self.client.close()
            process.terminate()
            try:
                status = process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
        self._watch_over(None)
        text = self.log()
        shutil.rmtree(self.folder, ignore_errors=True)
        return status, text


@contextlib.contextmanager
def gateway(answers: Optional[Answers] = None, *, engine: Optional[str] = None, binary: Optional[str] = None, **settings: Any) -> Iterator[Gateway]:
    """Runs a gateway during the block, whose engine has these answers (ScriptedEngine), or is the one of engine=
    ("builtin:echo")."""
    if (answers is None) == (engine is None):
        raise ValueError("gateway() needs either answers or engine=")
    binary = binary or find_binary()
    with contextlib.ExitStack() as stack:
        one: Union[ScriptedEngine, str] = engine or stack.enter_context(
            ScriptedEngine(answers or (), binary=binary, model=settings.get("model")))
        yield stack.enter_context(Gateway(one, binary=binary, **settings))
