"""Real SDKs (tests/clients) with the built-in engine: multi-turn tool tasks, plain and streamed, an abort within a
stream, retries of the SDKs. After each run the finalized session must be one trajectory with every generated token."""
import fcntl
import json
import shutil
import socket
import subprocess
import threading

import pytest

import gateway as g

CLIENTS = g.ROOT / "tests/clients"
NODE = CLIENTS / "node_modules/.bin/node"


def install_packages():
    """Installs the SDKs unless they are there; test files that run side by side wait for the first one."""
    with open(CLIENTS / "package.json", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if NODE.exists():
            return
        if not shutil.which("npm"):
            pytest.skip("npm is absent: the SDKs cannot be installed")
        done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=CLIENTS,
                              capture_output=True, text=True, timeout=600)
        if done.returncode != 0 or not NODE.exists():
            pytest.skip("npm ci failed: " + done.stderr[-300:])


@pytest.fixture(scope="module", autouse=True)
def packages():
    install_packages()


def serve(start, script="task.json", options=""):
    return start(workers=1, engine=f"builtin:script:{CLIENTS}/{script}{options}",
                 tool_parser="hermes", reasoning_parser="qwen3")


def new_session(gateway):
    return gateway.request("POST", "/sessions", {}).json()


def base_of(gateway, session, port=None):
    return f"http://127.0.0.1:{port or gateway.port}/sessions/{session['session_id']}/v1"


def run(program, *args):
    done = subprocess.run([str(NODE), str(CLIENTS / program), *args], capture_output=True,
                          text=True, timeout=120)
    lines = done.stdout.strip().splitlines()
    assert lines, done.stderr[-2000:]
    report = json.loads(lines[-1])
    assert report["ok"], "\n".join(report["failed"]) + done.stderr[-2000:]
    return report


def finalize(gateway, session):
    answer = gateway.request("POST", f"/sessions/{session['session_id']}/finalize",
                             {"format": "json"})
    assert answer.status == 200, answer.text
    return answer.json()


def check_one_trajectory(gateway, session, report, turns):
    state = gateway.request("GET", f"/sessions/{session['session_id']}").json()
    assert not state.get("tito_session_mismatch"), state
    export = finalize(gateway, session)
    assert len(export["trajectories"]) == 1, export
    trajectory = export["trajectories"][0]
    assert len(trajectory["turns"]) == turns
    assert sum(trajectory["response_mask"]) == report["completion_tokens"]
    assert all(turn["cause"] in ("new_root", "extended") for turn in trajectory["turns"])


@pytest.mark.parametrize("how", ["plain", "stream"])
@pytest.mark.parametrize("program, extra", [
    ("openai-chat.mjs", ()), ("openai-responses.mjs", ()), ("openai-responses.mjs", ("prev",)),
    ("anthropic.mjs", ()), ("langchain.mjs", ()), ("langchain.mjs", ("responses",)),
])
def test_tool_task(start, program, extra, how):
    gateway = serve(start)
    session = new_session(gateway)
    report = run(program, base_of(gateway, session), how, *extra)
    check_one_trajectory(gateway, session, report, 3)


@pytest.mark.parametrize("how", ["plain", "stream"])
@pytest.mark.parametrize("provider", ["chat", "responses", "anthropic", "compatible"])
def test_tool_task_and_a_second_question(start, provider, how):
    gateway = serve(start)
    session = new_session(gateway)
    report = run("aisdk.mjs", base_of(gateway, session), how, provider)
    check_one_trajectory(gateway, session, report, 4)


@pytest.mark.parametrize("client, how", [
    *((c, h) for c in ("azure", "deployment", "groq", "xsai") for h in ("plain", "stream")),
    ("openrouter", "plain"),    # its stream takes no "usage": null, which OpenAI's has
])
def test_clients_of_other_vendors(start, client, how):
    gateway = serve(start)
    session = new_session(gateway)
    report = run("other.mjs", base_of(gateway, session), how, client)
    check_one_trajectory(gateway, session, report, 3)


def test_abort_mid_stream(start):
    gateway = serve(start, "first.json", ",tokens_per_s=200")
    session = new_session(gateway)
    report = run("abort.mjs", base_of(gateway, session))
    check_one_trajectory(gateway, session, report, 1)


class Breaker:
    """Stands before the gateway. The first answer is read whole and thrown away with a reset, so
    the gateway has done the turn and the client does not know; later connections pass."""

    def __init__(self, port):
        self.target = port
        self.broken = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.threads.append(threading.Thread(target=self.relay, args=(client,), daemon=True))
            self.threads[-1].start()

    def relay(self, client):
        upstream = socket.create_connection(("127.0.0.1", self.target))
        first, self.broken = self.broken == 0, 1
        back = threading.Thread(target=self.answers, args=(upstream, client, first), daemon=True)
        back.start()
        self.copy(client, upstream)
        back.join()
        client.close()
        upstream.close()

    @staticmethod
    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def answers(self, upstream, client, first):
        if not first:
            return self.copy(upstream, client)
        seen = b""
        while b"usage" not in seen or not seen.rstrip().endswith(b"}"):
            seen += upstream.recv(65536)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        for side in (client, upstream):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other thread was first
        return None

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(10)


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_retry_of_a_lost_answer(start, sdk):
    gateway = start(workers=1, engine="builtin:echo")
    session = new_session(gateway)
    breaker = Breaker(gateway.port)
    try:
        report = run("retry.mjs", base_of(gateway, session, breaker.port), "plain", sdk)
    finally:
        breaker.close()
    check_one_trajectory(gateway, session, report, 1)
