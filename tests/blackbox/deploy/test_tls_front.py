"""`serve --front nginx`: TLS in one command. nginx is started, watched, reloaded and ended with the gateway."""
import ctypes
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess

import pytest

import gateway as g

pytestmark = pytest.mark.skipif(not (shutil.which("nginx") or os.path.exists("/usr/sbin/nginx")), reason="nginx is not installed")


def certificate(folder, name="gw.test"):
    folder.mkdir(exist_ok=True)
    subprocess.run([g.ROOT / "deploy/nginx/make-certificate", folder, name], check=True, capture_output=True)
    return {"tls_certificate": folder / "tls.crt", "tls_key": folder / "tls.key"}


def front_of(gateway):
    """The pid of the nginx that was started last."""
    return int(re.findall(r"front started front_pid=(\d+)", gateway.log())[-1])


class Front:
    def __init__(self, folder, **settings):
        self.folder, self.port = folder, g.free_port()
        self.files = certificate(folder / "tls")
        self.gateway = g.Gateway(**{"workers": 1, "engine": "builtin:echo", "front": "nginx", "front_listen": f"127.0.0.1:{self.port}",
                                    **self.files, **settings})

    def start(self):
        self.gateway.start()
        g.wait_until(self.serves, what="nginx serves")
        return self

    def serves(self):
        try:
            return self.request("GET", "/health")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def context(self, version=ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=self.files["tls_certificate"])
        context.minimum_version = context.maximum_version = version
        context.check_hostname = False
        return context

    def request(self, method, path, body=None):
        c = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context(), timeout=30)
        try:
            c.request(method, path, body=json.dumps(body) if body is not None else None, headers={"Content-Type": "application/json"})
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def peer(self, version=ssl.TLSVersion.TLSv1_3, alpn=()):
        """Version, protocol and certificate (DER) of a handshake."""
        context = self.context(version)
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(list(alpn))
        with socket.create_connection(("127.0.0.1", self.port), 20) as s, context.wrap_socket(s) as t:
            return t.version(), t.selected_alpn_protocol(), t.getpeercert(True)


@pytest.fixture(name="front")
def fixture_front(tmp_path):
    fronts = []

    def make(**settings):
        fronts.append(Front(tmp_path, **settings))
        return fronts[-1]
    yield make
    for front in fronts:
        front.gateway.stop()


def test_tls_in_one_command(front):
    f = front().start()
    assert f.peer()[0] == "TLSv1.3" and f.peer(ssl.TLSVersion.TLSv1_2)[0] == "TLSv1.2"
    assert f.peer(alpn=["h2", "http/1.1"])[1] == "h2"
    made = json.loads(f.request("POST", "/sessions", {})[1])
    status, text = f.request("POST", f"/sessions/{made['session_id']}/v1/chat/completions",
                             {"model": "m", "messages": [{"role": "user", "content": "over TLS"}]})
    assert status == 200 and b"over TLS" in text
    assert made["base_url"].startswith(f"https://127.0.0.1:{f.port}/"), "the session's address is that of the front"
    if shutil.which("curl"):
        got = subprocess.run(["curl", "-sk", "--http2", "-o", "/dev/null", "-w", "%{http_version} %{http_code}",
                              f"https://127.0.0.1:{f.port}/health"], text=True, capture_output=True, check=True).stdout
        assert got == "2 200"
    assert f.request("GET", "/metrics")[0] == 403


def test_the_end_takes_nginx_along(front):
    f = front().start()
    pids = [p for p in f.gateway.family() if "nginx" in pathlib.Path(f"/proc/{p}/cmdline").read_bytes().decode()]
    assert len(pids) >= 2, "a master and its workers"
    assert f.gateway.stop() == 0
    assert not any(g.alive(p) for p in pids)
    f.gateway.start()
    g.wait_until(f.serves, what="it serves again")
    f.gateway.allow("process died")
    os.kill(f.gateway.process.pid, signal.SIGKILL)      # nobody is left to end it
    g.wait_until(lambda: not f.gateway.leftovers(), what="nginx has ended, too")
    f.gateway.process.wait()


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_nginx_is_replaced(front, signo):
    f = front().start()
    f.gateway.allow("the front ended, replacing it", "Address already in use")
    old = front_of(f.gateway)
    os.kill(old, signo)     # KILL: its workers are left with the port for a moment, and nginx tries again
    g.wait_until(lambda: front_of(f.gateway) != old and f.serves(), what="a new one serves")
    if signo == signal.SIGKILL:
        assert f.gateway.has_line("the front ended, replacing it")
    assert f.gateway.metrics()['rollgate_process_restarts_total{role="front"}'] >= 1


def test_a_new_certificate_is_read(front, tmp_path):
    f = front().start()
    first, master = f.peer()[2], front_of(f.gateway)
    new = certificate(tmp_path / "new", "new.test")
    for name, path in new.items():      # as certbot: by rename, one after the other
        os.rename(path, f.files[name])
    g.wait_until(lambda: f.peer()[2] != first, what="the new certificate is shown")
    assert front_of(f.gateway) == master, "reloaded, not restarted"
    f.gateway.wait_line("the certificate has changed")


def test_hup_writes_the_site_again(front, tmp_path):
    config = tmp_path / "rollgate.yaml"
    config.write_text("max-body-bytes: 1MiB\n")
    f = front(config=config).start()
    body = {"pad": "x" * (2 << 20)}
    status, text = f.request("POST", "/sessions", body)
    assert status == 413 and b"nginx" in text, "nginx itself refuses it"
    config.write_text("max-body-bytes: 8MiB\n")
    f.gateway.signal(signal.SIGHUP)
    g.wait_until(lambda: b"nginx" not in f.request("POST", "/sessions", body)[1], what="nginx passes longer bodies on")


def test_a_hup_before_nginx_listens_does_not_end_it(front, tmp_path):
    """The stand-in becomes nginx only when the test says so: until then a HUP has no handler."""
    fake, go = tmp_path / "bin", tmp_path / "go"
    fake.mkdir()
    os.mkfifo(go)
    (fake / "nginx").write_text(f'#!/bin/sh\nread word <{go}\nexec {shutil.which("nginx") or "/usr/sbin/nginx"} "$@"\n')
    (fake / "nginx").chmod(0o755)
    f = front()
    f.gateway.env["PATH"] = f"{fake}:{os.environ['PATH']}"
    f.gateway.start()
    f.gateway.wait_line("front started")
    f.gateway.signal(signal.SIGHUP)
    f.gateway.wait_line("configuration reloaded")
    go.write_text("go\n")
    g.wait_until(f.serves, what="nginx serves")
    assert len(re.findall("front started", f.gateway.log())) == 1, "the first one"


def test_an_upgrade_without_a_front_ends_nginx(front, tmp_path):
    f = front()
    settings = {name: f.gateway.settings.pop(name) for name in ("front", "tls-certificate", "tls-key")}
    config = tmp_path / "rollgate.yaml"
    config.write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
    f.gateway.settings["config"] = config
    f.start()
    old = front_of(f.gateway)
    config.write_text("")
    f.gateway.signal(signal.SIGUSR2)
    g.wait_until(lambda: not g.alive(old), 60, what="nginx has ended")
    assert f.gateway.get("/health").status == 200 and not f.serves()
    assert len(re.findall("front started", f.gateway.log())) == 1


def test_a_key_in_a_query_does_not_reach_the_log(front, tmp_path):
    config = tmp_path / "rollgate.yaml"
    config.write_text("max-body-bytes: 1MiB\n")
    f = front(config=config).start()
    assert f.request("POST", "/sessions?key=SECRETOFQUERY", {"pad": "x" * (2 << 20)})[0] == 413
    f.gateway.allow("nginx")
    f.gateway.wait_line("client intended to send too large body.*key=")
    assert "SECRETOFQUERY" not in f.gateway.log()


def test_its_errors_are_lines_of_our_log(front):
    f = front(tls_key=None)
    f.gateway.settings["tls-key"] = f.files["tls_certificate"]  # a certificate is no key
    os.chmod(f.files["tls_certificate"], 0o600)
    f.gateway.allow("nginx", "the front ended")
    f.gateway.start()
    f.gateway.wait_line(r"error supervisor \d+ nginx line=.*PEM")
    assert f.gateway.get("/health").status == 200, "the gateway itself serves"
    assert f.gateway.stop() == 0


def test_an_upgrade_leaves_nginx_alone(front):
    f = front().start()
    old = front_of(f.gateway)
    f.gateway.signal(signal.SIGUSR2)
    g.wait_until(lambda: len(re.findall(r"supervisor \d+ serving ", f.gateway.log())) == 2, 60, "the new binary serves")
    assert f.serves() and g.alive(old)
    os.kill(old, signal.SIGKILL)
    f.gateway.allow("the front ended, replacing it")
    g.wait_until(lambda: front_of(f.gateway) != old and f.serves(), what="the new binary watches it")


class Inotify:
    """Counts how often files are opened."""

    def __init__(self, *paths):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for path in paths:
            assert self.libc.inotify_add_watch(self.fd, os.fsencode(path), 0x20) > 0     # IN_OPEN

    def opens(self):
        try:
            return len(os.read(self.fd, 65536)) // 16
        except BlockingIOError:
            return 0


def test_the_gateway_never_opens_the_private_key(front, tmp_path):
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "nginx").write_text("#!/bin/sh\necho '[warn] a stand-in' >&2\ntrap '' HUP\nexec sleep 600\n")
    (fake / "nginx").chmod(0o755)
    f = front()
    f.gateway.env["PATH"] = f"{fake}:{os.environ['PATH']}"
    watch = Inotify(f.files["tls_key"])
    f.gateway.start()
    f.gateway.wait_line("nginx line=\"a stand-in\"")
    f.gateway.signal(signal.SIGHUP)
    f.gateway.wait_line("configuration reloaded")
    os.utime(f.files["tls_key"])
    f.gateway.wait_line("the certificate has changed")
    assert watch.opens() == 0
    f.files["tls_key"].read_bytes()
    assert watch.opens() == 1, "the watch works"
    os.close(watch.fd)


@pytest.mark.parametrize("change, says", [
    ({"tls_key": None}, "--tls-key: --front nginx needs it"),
    ({"tls_key": "/no/key"}, "--tls-key: /no/key: No such file"),
    ({"tls_key": "OPEN"}, "can be read by every user: chmod 600 it"),
    ({"front_listen": "nowhere"}, "--front-listen: \"nowhere\" is not HOST:PORT"),
    ({"front_listen": ":8443"}, "--front-listen :8443: listening beyond loopback needs keys"),
    ({"front": "none"}, "has no effect without --front nginx"),
    ({"front": "apache"}, "front"),
    ({"run_dir": "/tmp/a b"}, '--run-dir: "/tmp/a b" cannot be written in an nginx file'),
    ({"run_dir": "/tmp/a;daemon on"}, "--run-dir"), ({"tls_certificate": "ODD"}, "cannot stand in an nginx file"),
    ({"peer": "256-511=unix:/tmp/a;b"}, '--peer: "256-511=unix:/tmp/a;b" cannot be written in an nginx file'),
])
def test_wrong_settings_are_named(front, change, says):
    if change.get("tls_key") == "OPEN":
        f = front()
        os.chmod(f.files["tls_key"], 0o644)
    elif change.get("tls_certificate") == "ODD":
        f = front()
        odd = f.folder / "odd;{'\n"
        shutil.copy(f.files["tls_certificate"], odd)
        f.gateway.settings["tls-certificate"] = odd
    else:
        f = front(**change)
    f.gateway.start(wait=False)
    assert f.gateway.wait() == 2
    assert says in f.gateway.log()
