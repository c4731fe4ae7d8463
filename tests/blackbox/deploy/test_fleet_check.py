"""`rollgate fleet check URL`: its reports on servers that can and cannot be the store of a fleet."""
import json
import re
import subprocess
import threading

import pytest

import gateway as g
from store_kit import KINDS, Proxy, Server, TlsServer, make_certificate


def run_check(url, *more, env=None):
    """(exit status, {check: level}, output)."""
    done = subprocess.run([g.BINARY, "fleet", "check", url, "--json", *more], capture_output=True, text=True, timeout=60, env=env)
    assert done.stderr == "", done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] == (done.returncode == 0)
    return done.returncode, {f["check"]: f["level"] for f in found["findings"]}, done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_server_passes_and_keeps_nothing(tmp_path, kind):
    with Server(tmp_path / "one", "--maxmemory", "100mb", "--appendonly", "yes", kind=kind) as one, \
            Server(tmp_path / "two", kind=kind) as two:
        two.follow(one)
        status, levels, out = run_check(one.url("run"))
        assert status == 0 and set(levels.values()) == {"ok"}, out
        assert {"version", "memory", "replica", "aof", "claims", "records", "fencing", "changes", "latency"} == set(levels)
        assert one.ask("KEYS", "*") == []
        status, levels, out = run_check(two.url("run"))
        assert status == 1 and levels == {"connection": "error"} and "is a replica" in out


def test_what_voids_the_promise_is_an_error_and_what_weakens_it_a_warning(tmp_path):
    with Server(tmp_path / "one") as server:
        status, levels, out = run_check(server.url())
        assert status == 0, out
        assert {check for check, level in levels.items() if level == "warning"} == {"memory", "replica", "aof"}
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        status, levels, out = run_check(server.url())
        assert status == 1 and levels["memory"] == "error" and "allkeys-lru" in out
    with Server(tmp_path / "two", "--cluster-enabled", "yes", "--cluster-port", str(g.free_port())) as server:
        status, levels, out = run_check(server.url())
        assert status == 1 and levels["cluster"] == "error"


def test_passwords_users_and_databases(tmp_path):
    key, wrong, empty = tmp_path / "key", tmp_path / "wrong", tmp_path / "empty"
    key.write_text("s3cret\n"), wrong.write_text("other"), empty.write_text("\n")
    with Server(tmp_path / "one", "--requirepass", "s3cret", password="s3cret") as server:
        assert run_check(server.url(password_file=key))[0] == 0
        assert "NOAUTH" in run_check(server.url())[2]
        assert "WRONGPASS" in run_check(server.url(password_file=wrong))[2]
        assert "is empty" in run_check(server.url(password_file=empty))[2]
        assert "cannot" in run_check(server.url(password_file=tmp_path / "none"))[2]
        server.ask("ACL", "SETUSER", "u", "on", ">pass", "~*", "&*", "+@all", "-info", "-role")
        wrong.write_text("pass")
        status, levels, out = run_check(server.url(password_file=wrong).replace("//", "//u@"))
        assert status == 0 and levels["server"] == "warning" and "by hand" in out and "not noticed" in out, out
        for rules in ("~rg:test:* &rg:* +@all", "~rg:test* resetchannels +@all", "~rg:test* &rg:test* +@all -publish"):
            server.ask("ACL", "SETUSER", "u", "reset", "on", ">pass", *rules.split())
            status, levels, out = run_check(server.url(password_file=wrong).replace("//", "//u@"))
            assert status == 1 and levels["claims"] == "error", out
            cure = re.search("give the user ([^\"]*)", out)[1].replace("NAME", "test")
        server.ask("ACL", "SETUSER", "u", "reset", "on", ">pass", *cure.split())
        status, levels, out = run_check(server.url(password_file=wrong).replace("//", "//u@"))
        assert status == 0 and levels["aof"] == "warning", out
        server.ask("SET", "rg:x", "1")
        assert run_check(server.url(password_file=key).replace("?", "/3?"))[0] == 0
        out = run_check(server.url(password_file=key).replace("?", "/99?"))[2]
        assert "SELECT" in out and "out of range" in out


def test_tls_is_checked(tmp_path):
    with TlsServer(tmp_path / "one") as server:
        status, _, out = run_check(server.url(), env=server.env)
        assert status == 0, out
        status, _, out = run_check(server.url())
        assert status == 1 and "certificate refused" in out
        status, _, out = run_check(server.url().replace("127.0.0.1", "localhost"), env=server.env)
        assert status == 1 and "certificate refused" in out
        status, levels, out = run_check(f"redis://127.0.0.1:{server.tls_port}")
        assert status == 1 and levels == {"connection": "error"}, out


def test_sentinel_names_the_server(tmp_path):
    port = g.free_port()
    with Server(tmp_path / "one") as one:
        conf = tmp_path / "sentinel.conf"
        conf.write_text(f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor main 127.0.0.1 {one.port} 1\n")
        sentinel = subprocess.Popen(["redis-server", str(conf), "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            g.wait_until(lambda: "error" not in run_check(f"redis://127.0.0.1:{port}?sentinel=main")[1].values(), 20)
            status, _, out = run_check(f"redis://127.0.0.1:{port}?sentinel=other")
            assert status == 1 and "no master of the name" in out
        finally:
            sentinel.kill()
            sentinel.wait()


def test_the_certificate_must_name_the_server_that_sentinel_names(tmp_path):
    """The Sentinel is `localhost`, the server 127.0.0.1. Neither certificate names the other."""
    port, trusted = g.free_port(), tmp_path / "trusted.pem"
    key, crt = make_certificate(tmp_path / "sentinel", "DNS:localhost")
    with TlsServer(tmp_path / "one") as one:
        trusted.write_text(crt.read_text() + (tmp_path / "one/crt.pem").read_text())
        conf = tmp_path / "sentinel.conf"
        conf.write_text(f"port 0\ntls-port {port}\nbind 127.0.0.1\ndir {tmp_path}\ntls-cert-file {crt}\ntls-key-file {key}\n"
                        f"tls-ca-cert-file {trusted}\ntls-auth-clients no\ntls-replication yes\n"
                        f"sentinel monitor main 127.0.0.1 {one.tls_port} 1\n")
        sentinel = subprocess.Popen(["redis-server", str(conf), "--sentinel"], stdout=subprocess.DEVNULL)
        env = {"SSL_CERT_FILE": str(trusted)}
        try:
            g.wait_until(lambda: "Connection refused" not in run_check(f"rediss://localhost:{port}?sentinel=main", env=env)[2], 20)
            status, _, out = run_check(f"rediss://localhost:{port}?sentinel=main", env=env)
            assert status == 0, out
            out = run_check(f"rediss://127.0.0.1:{port}?sentinel=main", env=env)[2]
            assert "certificate refused" in out
        finally:
            sentinel.kill()
            sentinel.wait()


def test_the_trial_stops_at_its_first_failure(tmp_path):
    check = b"redis.call('HGET', KEYS[2], 'value') ~= ARGV[1]"
    with Server(tmp_path / "one") as one, Proxy(one.port, [(check, b"false".ljust(len(check)))]) as proxy:
        status, levels, out = run_check(proxy.url())
        assert status == 1 and levels["claims"] == "error" and "`done` instead of `unknown`" in out
        assert not {"records", "fencing", "changes", "latency"} & set(levels)
        assert one.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"] == 2     # a claim, and the keys are erased
        assert one.ask("KEYS", "*") == []


def test_servers_that_are_none(tmp_path):
    with g.socket.create_server(("127.0.0.1", 0)) as silent:
        status, levels, out = run_check(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        assert status == 1 and levels == {"connection": "error"} and "no answer for 5000 ms" in out
    status, _, out = run_check(f"redis://127.0.0.1:{g.free_port()}")
    assert status == 1 and "Connection refused" in out
    status, _, out = run_check("redis://name.invalid")
    assert status == 1 and "does not resolve" in out


def test_an_old_server_is_named():
    def serve():
        near, _ = listener.accept()
        with near:
            near.recv(1 << 20)
            near.sendall(b"+OK\r\n*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n-ERR Error compiling script\r\n")
            while near.recv(1 << 20):
                pass

    with g.socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        status, levels, out = run_check(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        thread.join(10)
        assert status == 1 and levels == {"connection": "error"} and "older than 7.0" in out


def test_mistakes_of_the_command_are_named():
    for words, said in ((["fleet"], "usage"), (["fleet", "status", "x"], "usage"), (["fleet", "check"], "usage"),
                        (["fleet", "check", "http://x"], "neither redis:// nor rediss://"),
                        (["fleet", "check", "redis://:s3cret@h"], "password_file")):
        done = subprocess.run([g.BINARY, *words], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2 and said in done.stderr and "s3cret" not in done.stderr, done.stderr
