"""The first output that a user sees: the lines of `rollgate serve` at a terminal, and the findings of `rollgate
doctor`."""
import http.server
import json
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

import pytest

import gateway as g

NAMES = ["address", "viewer", "keys", "state", "engine"]


def serve_at_terminal(tmp_path, *flags, option=""):
    """Starts a gateway whose standard output is a terminal; its lines there, as name -> text."""
    master, slave = pty.openpty()
    port = g.free_port()
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([g.BINARY, "serve", f"--listen=127.0.0.1:{port}{option}", f"--state-dir={tmp_path}/state",
                                    "--workers=1", *flags], stdout=slave, stderr=log, stdin=subprocess.DEVNULL)
    os.close(slave)
    text = b""
    try:
        while text.count(b"\n") < 5:
            text += os.read(master, 4096)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        while True:     # what follows the five lines, to the end
            try:
                more = os.read(master, 4096)
            except OSError:
                break
            text += more
        os.close(master)
    lines = [line.split(None, 1) for line in text.decode().split("\r\n")[:-1]]
    assert [name for name, _ in lines] == NAMES, text
    return port, dict(lines)


def test_a_terminal_gets_five_lines(tmp_path):
    port, told = serve_at_terminal(tmp_path)
    assert told["address"] == f"http://127.0.0.1:{port}"
    assert told["viewer"] == f"http://127.0.0.1:{port}/ui"
    assert told["keys"].startswith("off: every program that reaches the port is the operator")
    assert told["state"].startswith(f"{tmp_path}/state: sessions survive")
    assert told["engine"].startswith("builtin:echo repeats the user's last message")


def test_the_lines_follow_the_settings(tmp_path):
    (tmp_path / "keys").write_text("secret-of-the-trainer\n")
    port, told = serve_at_terminal(tmp_path, "--ui=off", f"--admin-key-file={tmp_path}/keys", "--durability=none",
                                   "--engine=sglang:http://127.0.0.1:1")
    assert told["address"] == f"http://127.0.0.1:{port}" and told["viewer"].startswith("off")
    assert told["keys"].startswith("on: every request needs a key") and "secret-of" not in told["keys"]
    assert "nothing survives" in told["state"]
    assert told["engine"].startswith("sglang:http://127.0.0.1:1: NOT reached")


def test_an_engine_of_ids_needs_a_model():
    """The built-in tokenizer's ids mean nothing to a real engine. An upstream of messages needs none."""
    for engine, warned in (("sglang:http://127.0.0.1:1", True), ("openai:http://127.0.0.1:1", False), ("builtin:echo", False)):
        check = subprocess.run([g.BINARY, "config", "--check", f"--engine={engine}"], capture_output=True, text=True, check=True)
        assert (check.stderr == f"--model: not set, so {engine} is asked with ids of the built-in tokenizer (vocabulary 259)\n") == warned, check.stderr


def test_the_lines_name_the_settings_of_doctor(tmp_path):
    (tmp_path / "c.yaml").write_text("engine: sglang:http://127.0.0.1:1\n")
    _, told = serve_at_terminal(tmp_path, f"--config={tmp_path}/c.yaml")
    assert f"`rollgate doctor --config {tmp_path}/c.yaml` says why" in told["engine"]


def test_the_lines_name_tls(tmp_path):
    subprocess.run([g.ROOT / "deploy/nginx/make-certificate", tmp_path, "gw.test"], check=True, capture_output=True)
    port, told = serve_at_terminal(tmp_path, f"--tls-certificate={tmp_path}/tls.crt", f"--tls-key={tmp_path}/tls.key", option=",tls")
    assert told["address"] == f"https://127.0.0.1:{port}" and told["viewer"] == f"https://127.0.0.1:{port}/ui"


def test_an_engine_that_answers_is_reached(tmp_path):
    _, told = serve_at_terminal(tmp_path, "--engine=builtin:echo")
    assert told["engine"] == "builtin:echo: reached"


def test_without_a_terminal_nothing_is_printed(tmp_path):
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([g.BINARY, "serve", f"--listen=127.0.0.1:{g.free_port()}", f"--state-dir={tmp_path}/s",
                                    "--workers=1"], stdout=out, stderr=log, stdin=subprocess.DEVNULL)
    try:
        g.wait_until(lambda: " serving " in (tmp_path / "log").read_text(), what="it serves")
        g.stays(lambda: (tmp_path / "out").stat().st_size == 0, 0.5, "two ticks of the supervisor would print the lines")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


# --- doctor ---


@pytest.fixture(name="doctor")
def fixture_doctor(tmp_path):
    """Runs it; its exit status, and check -> findings of that name."""
    def run(*flags, code=None, preexec_fn=None, **settings):
        settings = {"listen": f"127.0.0.1:{g.free_port()}", "state-dir": f"{tmp_path}/state", "workers": 1,
                    **{k.replace("_", "-"): v for k, v in settings.items()}}
        command = [g.BINARY, "doctor", *[f"--{k}={v}" for k, v in settings.items()], *flags]
        done = subprocess.run([*command, "--json"], text=True, capture_output=True, check=False, timeout=120,
                              preexec_fn=preexec_fn, env=dict(os.environ, TMPDIR=folder))  # pylint: disable=subprocess-popen-preexec-fn
        told = json.loads(done.stdout)
        assert told["ok"] == (done.returncode == 0) and done.returncode == (0 if code is None else code), done.stdout
        found = {}
        for one in told["findings"]:
            assert set(one) == {"check", "level", "text", "cure"}
            assert (one["cure"] is None) == (one["level"] == "ok"), one    # each fault has its cure
            found.setdefault(one["check"], []).append(one)
        return found
    folder = tempfile.mkdtemp(prefix="rgd")
    yield run
    os.rmdir(folder)    # nothing of a gateway of its own is left


def only(found, check):
    assert len(found[check]) == 1, found
    return found[check][0]


def test_doctor_finds_nothing_wrong(doctor, tmp_path):
    found = doctor()
    assert set(found) >= {"kernel", "descriptors", "processors", "memory", "disk", "settings", "model", "port", "engine", "call"}
    assert only(found, "port")["text"].endswith(" is free")
    assert only(found, "engine")["text"] == "builtin:echo: answers"
    assert re.fullmatch(r"captured and exported: \d+ prompt tokens, \d+ sampled with logprobs", only(found, "call")["text"])
    assert not (tmp_path / "state").exists(), "the gateway's own folder is not touched"


def test_doctor_prints_one_line_a_finding():
    done = subprocess.run([g.BINARY, "doctor", f"--listen=127.0.0.1:{g.free_port()}",
                           f"--state-dir={g.BINARY}/state"], text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert all(re.match(r"(ok|warning|error) +\w+ +\S", line) for line in lines)
    assert sum(line.startswith("error") for line in lines) == 1
    disk = [line for line in lines if line.startswith("error")][0]
    assert "disk" in disk and disk.endswith("-> give the folder to the gateway's user, or set --state-dir")


def test_doctor_finds_faults_of_the_machine(doctor, tmp_path):
    few = doctor(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000)))
    assert only(few, "descriptors")["level"] == "warning" and "LimitNOFILE" in only(few, "descriptors")["cure"]
    much = doctor(max_worker_memory="1024GiB", workers=8, code=1)
    assert only(much, "memory")["level"] == "error" and "--max-worker-memory" in only(much, "memory")["cure"]
    many = doctor(workers=200)
    assert only(many, "processors")["level"] == "warning"
    assert only(many, "processors")["cure"] == f"--workers {len(os.sched_getaffinity(0))}"
    full = shutil.disk_usage(tmp_path).free < 1024 << 30
    disk = only(doctor(journal_min_free="1024GiB", code=1 if full else 0), "disk")
    assert disk["level"] == ("error" if full else "ok") and (not full or "free space" in disk["cure"])
    (tmp_path / "file").write_text("")
    assert only(doctor(state_dir=tmp_path / "file/state", code=1), "disk")["level"] == "error"


def test_doctor_finds_faults_of_settings_and_model(doctor, tmp_path):
    found = doctor(model=tmp_path / "nothing", code=1)
    assert only(found, "model")["level"] == "error" and "does not exist" in only(found, "model")["text"]
    assert only(found, "call")["text"] == "was not tried"
    found = doctor(engine="sglang:http://127.0.0.1:30000/v1", code=1)
    assert "ends with /v1" in only(found, "settings")["text"]
    folder = tmp_path / "model"
    shutil.copytree(g.MODELS / "chatml-bytes", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
                               "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    found = doctor(model=folder)
    assert only(found, "model")["level"] == "warning" and "no tool calls" in only(found, "model")["text"]
    bad = subprocess.run([g.BINARY, "doctor", "--modell=x"], text=True, capture_output=True, check=False, timeout=60)
    assert bad.returncode == 2 and "did you mean" in bad.stderr


class Page(http.server.BaseHTTPRequestHandler):
    """A server that is no gateway."""

    def do_GET(self):  # pylint: disable=invalid-name
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"no such page")

    def log_message(self, *args):  # pylint: disable=arguments-differ
        pass


def test_doctor_names_why_a_worker_does_not_start(doctor):
    """Routers answer before the worker has failed; the cause is reported all the same."""
    (call,) = doctor(sink="file:/nonexistent/folder", code=1)["call"]
    assert "cannot make /nonexistent/folder" in call["text"]


def test_doctor_finds_who_has_the_port(doctor):
    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = doctor(listen=f"127.0.0.1:{server.server_port}", code=1)
    server.shutdown()
    assert "belongs to a different program" in only(found, "port")["text"]
    assert only(found, "call")["level"] == "ok", "the rest is checked nevertheless"
    assert "choose a --listen address" in only(doctor(listen="192.0.2.1:8600", insecure="on", code=1), "port")["cure"]


def test_doctor_finds_an_engine_that_does_not_answer(doctor):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))    # nobody listens
        found = doctor(engine=f"sglang:http://127.0.0.1:{s.getsockname()[1]}", code=1)
    assert only(found, "engine")["text"].endswith(": does not answer") and "/health" in only(found, "engine")["cure"]
    assert only(found, "call") == {"check": "call", "level": "error", "text": "was not tried", "cure": "cure the engine first"}


def test_doctor_examines_the_gateway_that_runs(doctor, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of the trainer\nkey-one\n")
    out = tmp_path / "sink"
    running = g.Gateway(admin_key_file=keys, sink=f"file:{out}", workers=1).start()
    try:
        same = {"listen": running.settings["listen"], "admin_key_file": keys}
        found = doctor(**same)
        assert only(found, "port")["text"].endswith("a gateway runs here") and only(found, "call")["level"] == "ok"
        admin = {"Authorization": "Bearer key-one"}
        assert running.get("/sessions", headers=admin).json()["sessions"] == [], "its session is deleted"
        assert running.post("/admin/pause", headers=admin).status == 200
        found = doctor(**same)
        assert only(found, "call")["level"] == "warning" and only(found, "call")["cure"] == "POST /admin/resume"
        keys.write_text("key-two\n")
        found = doctor(**same, code=1)
        assert "401" in only(found, "engine")["text"] and not only(found, "engine")["text"].endswith("\n")
        assert f"does not know the first key of {keys}" in only(found, "engine")["cure"] and "reload it (HUP)" in only(found, "engine")["cure"]
        assert only(found, "call")["cure"] == "cure the refused request first"
        running.signal(signal.SIGHUP)
        running.wait_line("configuration reloaded")
        found = doctor(**same)
        assert only(found, "engine")["level"] == "ok" and only(found, "call")["cure"] == "POST /admin/resume", "the cure helps"
        found = doctor(listen=running.settings["listen"], code=1)
        assert only(found, "engine")["cure"] == "the gateway has keys: run doctor with its --config or --admin-key-file"
        assert not list(out.iterdir()), "no sink got the session"
    finally:
        running.stop()


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_doctor_that_is_ended_leaves_nothing(tmp_path, signo):
    """The engine takes its time, so the signal comes while the call is under way."""
    folder = tempfile.mkdtemp(prefix="rgd")
    process = subprocess.Popen([g.BINARY, "doctor", "--json", f"--listen=127.0.0.1:{g.free_port()}", f"--state-dir={tmp_path}/state", "--workers=1",
                                "--engine=builtin:echo,delay_ms=60000"], text=True, stdout=subprocess.PIPE, env=dict(os.environ, TMPDIR=folder))

    def family():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                found += [pid] * (folder.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes())
            except OSError:
                pass    # it has ended
        return found
    g.wait_until(lambda: any(p.stat().st_size > 0 for p in pathlib.Path(folder).glob("*/s/worker-0/seg-*")), 60, "its gateway serves")
    process.send_signal(signo)
    told = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 1 and not told["ok"]
    g.wait_until(lambda: not family(), what="no process is left")
    os.rmdir(folder)
