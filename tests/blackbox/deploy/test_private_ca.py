"""A private certificate authority: every command of the binary accepts --ca-file, and all processes of the gateway
use SSL_CERT_FILE."""
import os
import pathlib
import shutil
import subprocess

import pytest

import gateway as g
from runner_kit import Runner
from test_gateway_tls import TlsEngine, call

TLS = pathlib.Path(__file__).parents[2] / "data/tls"
CA = str(TLS / "ca.pem")
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"


@pytest.fixture
def front(start, tmp_path):
    """A gateway, and the URL of a real nginx in front of it whose certificate our own authority signed."""
    if not os.path.exists(NGINX):
        pytest.skip("nginx is not installed")
    gateway, port = start(workers=1, engine="builtin:echo"), g.free_port()
    (tmp_path / "nginx.conf").write_text(f"""daemon off; pid {tmp_path}/pid; error_log stderr;
events {{}}
http {{ access_log off; client_body_temp_path {tmp_path}/b; proxy_temp_path {tmp_path}/p; fastcgi_temp_path {tmp_path}/f;
  uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;
  server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {TLS}/good.pem; ssl_certificate_key {TLS}/good.key;
    location / {{ proxy_pass http://127.0.0.1:{gateway.port}; }} }} }}""")
    nginx = subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"],
                             stderr=subprocess.DEVNULL)
    gateway.front = f"https://localhost:{port}"
    g.wait_until(lambda: ask("group", "list", "--gateway", gateway.front, "--ca-file", CA).returncode == 0, what="nginx answers")
    yield gateway
    nginx.terminate()
    nginx.wait()


def ask(*words, **env):
    return subprocess.run([str(g.BINARY), *words], env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("words", [("group", "list"), ("top", "--once")], ids=["group", "top"])
def test_commands_trust_the_authority_that_they_are_given(front, words):
    refused = ask(*words, "--gateway", front.front, SSL_CERT_FILE="")
    assert refused.returncode == 1 and "certificate" in refused.stderr, refused.stderr
    for done in (ask(*words, "--gateway", front.front, "--ca-file", CA), ask(*words, "--gateway", front.front, SSL_CERT_FILE=CA)):
        assert done.returncode == 0, done.stderr
    missing = ask(*words, "--gateway", front.front, "--ca-file", "/no/such.pem")
    assert missing.returncode in (1, 2) and "/no/such.pem" in missing.stderr


def test_a_runner_trusts_the_authority_that_it_is_given(front):
    runner = Runner(front, {"r": {"run": ["true"], "slots": 1}}, **{"ca-file": CA})
    runner.options["gateway"] = front.front
    with runner:
        front.request("PUT", "/groups/x", {"runner": "r", "n": 1, "input": 0})
        g.wait_until(lambda: front.get("/groups/x").json()["state"] == "failed", what="the run without a call has ended")


def test_a_gateway_honors_ssl_cert_file_for_engines(start):
    with TlsEngine("good") as engine:
        gateway = start(workers=1, engine=engine.setting_at("localhost"), env={"SSL_CERT_FILE": CA})
        assert call(gateway).status == 200
