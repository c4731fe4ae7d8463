"""Without keys each client of the port is the operator, but no web page of a different site is. Tests which Host and
Origin are served, on both planes, also through the generated nginx site, in a container and with --insecure."""
import json
import os
import shutil
import signal
import socket
import subprocess

import pytest

import gateway as g
from router_kit import Reader, parse_head, read_body
from test_deploy import Nginx

PATHS = [("GET", "/sessions"), ("GET", "/health"), ("GET", "/ready"), ("GET", "/metrics"), ("GET", "/"), ("GET", "/ui"),
         ("GET", "/events"), ("POST", "/admin/engines"), ("POST", "/sessions"), ("PUT", "/groups/a"), ("POST", "/v1/chat/completions"),
         ("GET", "/sessions/w0-" + "0" * 32)]


def ask(port, method, path, headers, address="127.0.0.1", body=b"", version="1.1"):
    """One raw request with exactly these headers: status, headers, body."""
    with socket.create_connection((address, port), timeout=80) as s:
        lines = [f"{method} {path} HTTP/{version}", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        reader = Reader(s)
        first, got = parse_head(reader.until(b"\r\n\r\n"))
        return int(first.split()[1]), dict(got), reader if "text/event-stream" in dict(got).get("content-type", "") \
            else read_body(reader, got)[0]


def code(answer):
    error = json.loads(answer[2])["error"]
    return error.get("code") or error["type"]


@pytest.fixture
def gateway(start):
    return start(engine="builtin:echo", workers=2)


@pytest.mark.parametrize("method,path", PATHS)
def test_a_foreign_name_or_page_is_refused_on_every_path(kept, method, path):
    gateway = kept.gateway(engine="builtin:echo", workers=2)
    body = b'{"engines": ["http://evil.example"]}' if method != "GET" else b""
    evil = ask(gateway.port, method, path, ["Host: evil.example:8600", "Content-Type: text/plain"], body=body)
    assert evil[0] == 403 and code(evil) == "host_not_allowed" and b"--allowed-hosts" in evil[2] and b"evil.example" in evil[2]
    for header in ("Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "Origin: http://127.0.0.1:1"):
        page = ask(gateway.port, method, path, [f"Host: 127.0.0.1:{gateway.port}", header, "Content-Type: text/plain"], body=body)
        assert page[0] == 403 and code(page) == "origin_not_allowed" and b"--allowed-hosts" in page[2], header
    served = ask(gateway.port, method, path, [f"Host: 127.0.0.1:{gateway.port}", f"Origin: http://127.0.0.1:{gateway.port}",
                                              "Sec-Fetch-Site: same-origin"], body=body)
    assert served[0] != 403


def test_what_was_refused_changed_nothing_and_is_counted_and_logged(gateway):
    def names():
        return [e["name"] for e in gateway.get("/admin/engines").json()["engines"]]
    before = names()
    headers = [f"Host: localhost:{gateway.port}", "Origin: http://evil.example", "Content-Type: text/plain"]
    assert ask(gateway.port, "POST", "/admin/engines", headers, body=b'{"engines": ["vllm:http://evil.example"]}')[0] == 403
    assert ask(gateway.port, "GET", "/sessions", ["Host: evil.example"])[0] == 403
    assert names() == before
    metrics = gateway.get("/metrics").text
    assert 'rollgate_refusals_total{reason="host"} 1\n' in metrics and 'rollgate_refusals_total{reason="origin"} 1\n' in metrics
    assert gateway.has_line("refused a request of another site.*reason=")


HOST = socket.gethostname().lower()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LocalHost.", "localhost.:80", "localhost:", "a.b.localhost",
                                  "[::1]", "[::1]:8600", "192.0.2.7", "[2001:db8::1]:80", HOST, HOST.upper() + ":99", HOST + "."])
def test_own_names_and_addresses_are_served(kept, host):
    gateway = kept.gateway(engine="builtin:echo", workers=2)
    assert ask(gateway.port, "GET", "/sessions", [f"Host: {host}"])[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "notlocalhost", "127.0.0.1.evil.example", "127.1", "0x7f000001",
                                  "2130706433", "localhost..", ".", "", "[::1", "::1", "localhost:x", "127.0.0.1:99999", HOST + ".evil.example",
                                  "x" * 300])
def test_other_names_are_not(kept, host):
    gateway = kept.gateway(engine="builtin:echo", workers=2)
    assert ask(gateway.port, "GET", "/sessions", [f"Host: {host}"])[0] == 403


def test_a_request_that_names_no_site_or_two_is_no_way_in(gateway):
    own = f"Host: localhost:{gateway.port}"
    assert ask(gateway.port, "GET", "/sessions", [])[0] == 400
    assert ask(gateway.port, "GET", "/sessions", [], version="1.0")[0] == 400
    assert ask(gateway.port, "GET", "/health", [], version="1.0")[0] == 200
    assert ask(gateway.port, "GET", "/sessions", [own, "Host: evil.example"])[0] == 400
    assert ask(gateway.port, "GET", f"http://localhost:{gateway.port}/sessions", ["Host: evil.example"])[0] == 400
    assert ask(gateway.port, "GET", "/sessions", [own, f"Origin: http://localhost:{gateway.port}", "Origin: http://evil.example"])[0] == 403
    assert ask(gateway.port, "GET", "/sessions", [own, "Origin: http://evil.example", "X-Forwarded-Host: good.example"])[0] == 403
    assert ask(gateway.port, "OPTIONS", "/sessions", [own, "Origin: http://evil.example",
                                                      "Access-Control-Request-Headers: x-forwarded-host"])[0] == 403
    assert ask(gateway.port, "GET", "/sessions", [own, "Connection: origin", "Origin: http://evil.example"])[0] in (400, 403)


def test_an_origin_is_compared_by_name_and_port(gateway):
    def status(host, origin, *more):
        return ask(gateway.port, "GET", "/sessions", [f"Host: {host}", f"Origin: {origin}", *more])[0]
    assert status("localhost", "http://localhost") == status("localhost:443", "https://localhost") == 200
    assert status("LOCALHOST:8600", "http://localhost:8600") == status("[::1]:8600", "http://[::1]:8600") == 200
    assert status("localhost:8600", "http://localhost:3000") == status("localhost", "http://localhost:8600") == 403
    assert status("127.0.0.1", "https://gw.test", "X-Forwarded-Host: gw.test") == 200
    assert status("127.0.0.1", "https://gw.test:8443", "X-Forwarded-Host: gw.test") == 403


def test_allowed_hosts_add_names_and_a_reload_takes_them_away(start, tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text("allowed-hosts: [gw.example, 'one.example:8600, *.pool.example']\n")
    s = start(engine="builtin:echo", workers=1, config=str(settings))

    def status(host, *more):
        return ask(s.port, "GET", "/sessions", [f"Host: {host}", *more])[0]
    assert status("gw.example") == status("GW.example.:1") == status("one.example:8600") == status("a.b.pool.example") == 200
    assert status("one.example:1") == status("pool.example") == status("a.gw.example") == 403
    assert status("127.0.0.1", "Origin: https://gw.example") == 200   # a proxy that passes neither Host nor X-Forwarded-Host
    assert status("gw.example", "Origin: https://gw.example", "Sec-Fetch-Site: cross-site") == 403
    settings.write_text("allowed-hosts: [other.example]\n")
    s.signal(signal.SIGHUP)
    g.wait_until(lambda: status("other.example") == 200, what="the reload is obeyed")
    g.wait_until(lambda: status("gw.example") == 403, what="the old name is refused")


def test_a_lent_connection_goes_back_when_a_reload_forbids_its_host(start, tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text("allowed-hosts: [gw.example]\n")
    s = start(engine="builtin:echo", workers=1, config=str(settings), lend_after=1)
    session = s.post("/sessions", {}).json()["session_id"]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}).encode()
    request = (f"POST /sessions/{session}/v1/chat/completions HTTP/1.1\r\nHost: gw.example\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(body)}\r\n\r\n").encode() + body
    with socket.create_connection(("127.0.0.1", s.port), timeout=80) as sock:
        reader = Reader(sock)

        def status():
            sock.sendall(request)
            first, headers = parse_head(reader.until(b"\r\n\r\n"))
            read_body(reader, headers)
            return int(first.split()[1])
        assert status() == 200
        g.wait_until(lambda: status() == 200 and "rollgate_connections_lent 1" in s.get("/metrics").text, what="it is lent")
        settings.write_text("log-level: info\n")
        s.signal(signal.SIGHUP)
        g.wait_until(lambda: status() == 403, what="the name is refused on the lent connection, too")


def test_a_bad_allowed_host_is_an_error_at_the_start():
    for bad in ("http://gw.example", "a b", "gw.example,", "*", "[::1"):
        done = subprocess.run([g.BINARY, "config", "--check", f"--allowed-hosts={bad}"], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and "allowed-hosts" in done.stderr + done.stdout, bad


def test_with_keys_every_name_is_served(start, tmp_path):
    (tmp_path / "admin").write_text("an-admin-key-of-this-test\n")
    s = start(engine="builtin:echo", workers=1, admin_key_file=str(tmp_path / "admin"))
    key = "x-api-key: an-admin-key-of-this-test"
    assert ask(s.port, "GET", "/sessions", ["Host: gw.example", "Origin: https://page.example", key])[0] == 200
    assert ask(s.port, "GET", "/sessions", ["Host: gw.example"])[0] == 401


def test_insecure_lifts_nothing_and_the_start_line_says_what_no_keys_means():
    port = g.free_port()
    s = g.Gateway(engine="builtin:echo", workers=1, insecure=True, listen=f"0.0.0.0:{port}")
    s.port = port
    s.start()
    assert s.has_line("rollgate starts .*keys=\"off: every program that reaches the port is the operator.*--allowed-hosts")
    assert ask(port, "GET", "/sessions", ["Host: evil.example"])[0] == 403
    assert ask(port, "GET", "/sessions", ["Host: localhost", "Sec-Fetch-Site: cross-site"])[0] == 403
    assert ask(port, "GET", "/sessions", [f"Host: {HOST}:{port}"])[0] == 200


def test_a_container_is_known_by_its_host_name_and_by_the_names_its_hosts_file_adds(tmp_path):
    """The host name of a container, the name that the engine wrote beside it, and a new host name while it runs."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("a container's name needs root and unshare")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost ads.example\n172.17.0.2 3f2a9c.lan 3f2a9c trainer-gateway # mine\n"
                                    "127.0.0.1 evil.example\n")
    (tmp_path / "resolv.conf").write_text("nameserver 192.0.2.1\nsearch cluster.example lab.example\n")
    port = g.free_port()
    s = g.Gateway(engine="builtin:echo", workers=1, insecure=True, listen=f"0.0.0.0:{port}", allowed_hosts="service.example")
    s.port = port
    arguments = s.arguments()
    script = (f"mount --bind {tmp_path}/hosts /etc/hosts && mount --bind {tmp_path}/resolv.conf /etc/resolv.conf && "
              f"hostname 3f2a9c && exec \"$0\" \"$@\"")
    s.arguments = lambda: ["unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script, *arguments]
    try:
        s.start()
    except AssertionError as e:
        if "unshare" in str(e) or "mount" in str(e):
            pytest.skip(f"no namespaces here: {e}")
        raise

    def status(host):
        return ask(port, "GET", "/sessions", [f"Host: {host}:{port}"])[0]
    for name in ("3f2a9c", "3f2a9c.lan", "trainer-gateway", "3f2a9c.cluster.example", "3f2a9c.lab.example", "service.example"):
        assert status(name) == 200, name
    for name in ("evil.example", "ads.example", "mine", "cluster.example", "gateway"):
        assert status(name) == 403, name
    subprocess.run(["nsenter", "--target", str(s.process.pid), "--uts", "hostname", "renamed"], check=True, timeout=20)
    g.wait_until(lambda: status("renamed") == 200 and status("3f2a9c") == 403, what="the new name holds")


def test_the_generated_site_serves_its_own_pages_and_no_others(start, tmp_path):
    """Names in --server-name need no --allowed-hosts: nginx sends the node's own Host, and Origin is compared with the client's."""
    if not (shutil.which("nginx") or os.path.exists("/usr/sbin/nginx")):
        pytest.skip("nginx is not installed")
    nodes = [start(engine="builtin:echo", workers=1, worker_base=base) for base in (0, 4)]
    site = Nginx(tmp_path, ["--listen", f"127.0.0.1:{nodes[0].port}", "--workers", "1",
                            "--peer", f"4-4=127.0.0.1:{nodes[1].port}"])
    try:
        def status(method, path, **headers):
            c = site.connect()
            c.request(method, path, body="{}" if method == "POST" else None,
                      headers={"Host": f"gw.test:{site.port}", **{k.replace("_", "-"): v for k, v in headers.items()}})
            r = c.getresponse()
            body = r.read()
            c.close()
            return r.status, body
        own, evil = f"https://gw.test:{site.port}", "https://evil.example"
        for _ in range(4):                      # both nodes in turn
            made = status("POST", "/sessions", Origin=own)
            assert made[0] in (200, 201)
            session = json.loads(made[1])
            assert session["base_url"].startswith(f"https://gw.test:{site.port}/sessions/")
            for path in ("/sessions", f"/sessions/{session['session_id']}", "/v1/models", "/ui/"):
                assert status("GET", path)[0] == status("GET", path, Origin=own)[0] != 403, path
                assert status("GET", path, Origin=evil)[0] == 403
                assert status("GET", path, Sec_Fetch_Site="cross-site")[0] == 403
            assert status("POST", "/sessions", Origin=evil, Content_Type="text/plain")[0] == 403
            assert status("GET", "/sessions", Origin=evil, X_Forwarded_Host="evil.example")[0] == 403
    finally:
        site.close()
