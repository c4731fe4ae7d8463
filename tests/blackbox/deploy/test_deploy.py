"""The files of deploy/ with real programs: nginx with TLS in front, the systemd unit, the batch script."""
import grp
import http.client
import http.server
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import pytest

import gateway as g


class Upstream(http.server.BaseHTTPRequestHandler):
    """A worker as nginx' tests need one: it lets the test decide when the next event is sent, and
    tells the test what of an upload has arrived."""
    protocol_version = "HTTP/1.1"
    wbufsize = 0
    go_on = threading.Semaphore(0)
    arrived = threading.Event()

    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.path.endswith("/stream"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(5):
                assert self.go_on.acquire(timeout=20)
                event = b"data: %d\n\n" % i
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.answer(self.server.name.encode())

    def do_POST(self):
        half = int(self.headers["X-Half"])
        got = len(self.rfile.read(half))
        self.arrived.set()
        got += len(self.rfile.read(int(self.headers["Content-Length"]) - half))
        self.answer(b"%d" % got)

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Node:
    """A `rollgate route` over one such worker, standing for a node that owns one index."""

    def __init__(self, name, base):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
        self.server.daemon_threads = True
        self.server.name = name
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.route = g.Gateway(command="route", worker_base=base, workers=None,
                               upstream=f"127.0.0.1:{self.server.server_address[1]}").start()

    def close(self):
        self.route.stop()
        self.server.shutdown()
        self.server.server_close()


class Nginx:
    def __init__(self, folder, site):
        self.folder, self.port = folder, g.free_port()
        subprocess.run([g.ROOT / "deploy/nginx/make-certificate", folder, "gw.test"], check=True)
        text = subprocess.run([g.BINARY, "nginx-config", "--server-name", "gw.test", "--certificate",
                               f"{folder}/tls.crt", "--certificate-key", f"{folder}/tls.key",
                               "--site-listen", f"127.0.0.1:{self.port}"] + site,
                              check=True, capture_output=True, text=True).stdout
        (folder / "site.conf").write_text(text)
        temps = "".join(f"  {k}_temp_path {folder}/{k};\n"
                        for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(
            f"worker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error.log warn;\n"
            "events { worker_connections 512; }\n"
            f"http {{\n  access_log off;\n{temps}  include {folder}/site.conf;\n}}\n")
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e",
                   str(folder / "error.log")]
        subprocess.run(command + ["-t"], check=True, capture_output=True)
        self.process = subprocess.Popen(command + ["-g", "daemon off;"], stdin=subprocess.DEVNULL)
        self.tls = ssl.create_default_context(cafile=f"{folder}/tls.crt")
        try:
            g.wait_until(self.listening, what="nginx listens")
        except AssertionError:      # nobody else knows of it yet
            self.process.kill()
            self.process.wait()
            raise

    def listening(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.tls, timeout=20)

    def get(self, path, **headers):
        c = self.connect()
        c.request("GET", path, headers=headers)
        r = c.getresponse()
        body = r.read().decode()
        c.close()
        return r.status, body

    def close(self):
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(20)
        assert "[emerg]" not in (self.folder / "error.log").read_text()


@pytest.fixture
def front(tmp_path):
    """nginx over two nodes: indexes 0 and 4."""
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    if not (shutil.which("nginx") or os.path.exists("/usr/sbin/nginx")):
        pytest.skip("nginx is not installed")
    nodes = [Node("first", 0), Node("second", 4)]
    nginx = Nginx(tmp_path, ["--listen", f"127.0.0.1:{nodes[0].route.port}", "--workers", "1",
                             "--peer", f"4-4=127.0.0.1:{nodes[1].route.port}"])
    yield nginx
    nginx.close()
    for node in nodes:
        node.close()


HEX = "0123456789abcdef" * 2


def test_nginx_sends_sessions_to_their_node(front):
    assert front.get(f"/sessions/w0-{HEX}/x") == (200, "first")
    assert front.get(f"/sessions/w4-{HEX}/x") == (200, "second")
    assert front.get("/v1/models", Authorization=f"Bearer rga-w4-{HEX}-{'0' * 64}") == (200, "second")
    assert front.get("/v1/models", **{"x-api-key": f"rga-w0-{HEX}-{'0' * 64}"}) == (200, "first")
    assert {front.get("/v1/models")[1] for _ in range(8)} == {"first", "second"}
    assert front.get("/health")[0] == 200
    assert front.get("/metrics")[0] == 403


def test_nginx_passes_each_event_on_before_the_next_is_sent(front):
    c = front.connect()
    for _ in range(2):  # also on a reused connection
        c.request("GET", f"/sessions/w0-{HEX}/stream")
        r = None
        for i in range(5):
            Upstream.go_on.release()
            r = r or c.getresponse()
            assert r.read(len(f"data: {i}\n\n")) == f"data: {i}\n\n".encode()
        assert r.read() == b""
    c.close()


def test_nginx_passes_an_upload_on_while_it_comes(front):
    half = 300_000
    c = front.connect()
    Upstream.arrived.clear()
    c.putrequest("POST", f"/sessions/w0-{HEX}/upload")
    c.putheader("Content-Length", str(2 * half))
    c.putheader("X-Half", str(half))
    c.endheaders()
    c.send(b"x" * half)
    assert Upstream.arrived.wait(20), "the worker got nothing while the client still sends"
    c.send(b"x" * half)
    assert c.getresponse().read() == b"%d" % (2 * half)
    c.close()


def test_the_systemd_unit_verifies(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    for name in ("rollgate.service", "rollgate.socket", "rollgate-runner.service"):
        text = (g.ROOT / "deploy/systemd" / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/rollgate", str(g.BINARY)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "rollgate.service",
                           tmp_path / "rollgate.socket", tmp_path / "rollgate-runner.service"], capture_output=True, text=True)
    ours = [line for line in done.stderr.split("\n") if "rollgate" in line]
    assert done.returncode == 0 and ours == []
    done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20",
                           tmp_path / "rollgate.service"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_a_user_of_its_own_reads_a_key_file_of_its_group(tmp_path):
    """`serve --user` under a unit or a script: the key is root's, and its group may read it. The boot changes neither."""
    if os.getuid() != 0 or not shutil.which("systemd-tmpfiles"):
        pytest.skip("only root can become another user, and systemd-tmpfiles is needed")
    keys = tmp_path / "etc/rollgate/admin-keys"
    keys.parent.mkdir(parents=True)
    keys.write_text("the-key-of-this-test\n")
    group = grp.getgrnam("nogroup").gr_gid
    os.chown(keys, 0, group)
    keys.chmod(0o640)
    subprocess.run(["systemd-tmpfiles", "--create", f"--root={tmp_path}", g.ROOT / "deploy/systemd/rollgate.tmpfiles"], check=True, capture_output=True)
    assert (keys.stat().st_mode & 0o777, keys.stat().st_uid, keys.stat().st_gid) == (0o640, 0, group)
    gateway = g.Gateway(workers=1, user="nobody", engine="builtin:echo")
    os.chmod(gateway.folder, 0o755)
    os.mkdir(f"{gateway.folder}/state")
    shutil.chown(f"{gateway.folder}/state", "nobody", "nogroup")
    gateway.settings["admin-key-file"] = shutil.move(keys, f"{gateway.folder}/admin-keys")
    try:
        gateway.start()
        assert gateway.post("/sessions", {}).status == 401
        assert gateway.post("/sessions", {}, headers={"authorization": "Bearer the-key-of-this-test"}).status == 200
        worker = pathlib.Path(f"/proc/{gateway.child('worker-0')}").stat().st_uid
        assert worker == pwd.getpwnam("nobody").pw_uid
    finally:
        gateway.stop()


def test_the_units_settings_load():
    """Every ROLLGATE_ variable and every flag of the deployment files is a setting."""
    if not g.BINARY.exists():
        pytest.skip(f"{g.BINARY} is not built")
    text = "".join((g.ROOT / "deploy" / f).read_text()
                   for f in ("systemd/rollgate.service", "slurm/rollgate.sbatch", "Containerfile"))
    docs = subprocess.run([g.BINARY, "config", "--docs"], check=True, capture_output=True, text=True)
    for flag in re.findall(r"(?<= )--(listen|workers|worker-base|state-dir|run-dir|grace|config)\b", text):
        assert f"\n#{flag}: " in docs.stdout or flag == "config"
    for name in re.findall(r"ROLLGATE_([A-Z_]+)=", text):
        assert f"\n#{name.lower().replace('_', '-')}: " in docs.stdout, name
    for name in ("rollgate", "rollgate-runner"):
        subprocess.run(["bash", "-n", g.ROOT / f"deploy/slurm/{name}.sbatch"], check=True)
