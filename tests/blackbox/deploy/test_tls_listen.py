"""`serve --listen ADDRESS,tls`: the routers speak TLS 1.2 themselves, and relay requests as without TLS."""
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess

import pytest

import gateway as g
from test_tls_front import certificate

CALL = {"model": "m", "messages": [{"role": "user", "content": "over TLS"}]}


def authority(folder):
    """A CA, and a certificate of it for a client."""
    folder.mkdir()
    for name, more in {"ca": ["-x509"], "client": ["-x509", "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key"]}.items():
        subprocess.run(["openssl", "req", *more, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                        "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"], check=True, capture_output=True)
    return folder


class Port:
    """A gateway whose port speaks TLS."""

    def __init__(self, folder, key=None, **settings):
        self.files = certificate(folder / "tls")
        if key:
            kind, value = key.split(":")
            kind = ["ec", "-pkeyopt", f"ec_paramgen_curve:{value}"] if kind == "ec" else [key]
            subprocess.run(["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "9", "-subj", "/CN=gw.test", "-addext",
                            "subjectAltName=IP:127.0.0.1", "-keyout", self.files["tls_key"], "-out", self.files["tls_certificate"]],
                           check=True, capture_output=True)
        self.gateway = g.Gateway(**{"workers": 1, "engine": "builtin:echo", **self.files, **settings})
        self.gateway.settings["listen"] += ",tls"
        self.gateway.connect = self.connect

    def context(self, version=ssl.TLSVersion.TLSv1_2, client=None):
        c = ssl.create_default_context(cafile=self.files["tls_certificate"])
        c.minimum_version = c.maximum_version = version
        c.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF      # an end without close_notify is an error
        if client:
            c.load_cert_chain(client / "client.crt", client / "client.key")
        return c

    def connect(self, timeout=30, **more):
        return http.client.HTTPSConnection("127.0.0.1", self.gateway.port, context=self.context(**more), timeout=g.PATIENCE * timeout)

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.gateway.port), g.PATIENCE * 20)

    def socket(self, **more):
        plain = self.raw()
        try:
            return self.context(**more).wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
        except BaseException:
            plain.close()
            raise

    def handshakes(self, outcome):
        return self.gateway.metrics()[f'rollgate_tls_handshakes_total{{outcome="{outcome}"}}']


@pytest.fixture(name="port")
def fixture_port(tmp_path):
    ports = []

    def make(**settings):
        ports.append(Port(tmp_path, **settings))
        return ports[-1]
    yield make
    for port in ports:
        port.gateway.stop()


@pytest.fixture(name="served")
def fixture_served(port):
    p = port()
    p.gateway.start()
    return p


def read_all(s):
    """All up to the proper end of TLS; an end without one raises."""
    parts = []
    while part := s.recv(65536):
        parts.append(part)
    return b"".join(parts)


def head(method, path, *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def echo(gateway, text, **more):
    sid = gateway.post("/sessions", {}).json()["session_id"]
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": text}], **more})


@pytest.mark.parametrize("key", [None, "rsa:4096", "ec:secp521r1"])
def test_calls_whole_and_streamed(port, key):
    p = port(key=key)
    p.gateway.start()
    with p.socket() as s:
        assert s.version() == "TLSv1.2"
    made = p.gateway.post("/sessions", {}).json()
    assert made["base_url"].startswith(f"https://127.0.0.1:{p.gateway.port}/")
    path = f"/sessions/{made['session_id']}/v1/chat/completions"
    assert p.gateway.post(path, CALL).json()["choices"][0]["message"]["content"].endswith("over TLS")
    streamed = p.gateway.post(path, {**CALL, "stream": True}).text
    assert streamed.rstrip().endswith("data: [DONE]") and "TLS" in streamed


def test_alpn_chooses_http_1(served):
    context = served.context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with served.raw() as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as s:
        assert s.selected_alpn_protocol() == "http/1.1"


def test_a_proxy_may_name_the_scheme_itself(served):
    assert served.gateway.post("/sessions", {}, headers={"X-Forwarded-Proto": "http"}).json()["base_url"].startswith("http://")


def test_page_of_the_same_origin_may_send(served):
    own = f"https://127.0.0.1:{served.gateway.port}"
    assert [served.gateway.post("/sessions", {}, headers={"Origin": o}).status for o in (own, "https://other.example")] == [200, 403]


def test_route_speaks_tls_before_plain_workers(port, start):
    workers = start(engine="builtin:echo", workers=1)
    p = port(command="route", engine=None, workers=None, upstream=f"127.0.0.1:{workers.port}")
    p.gateway.start()
    assert echo(p.gateway, "through both").json()["choices"][0]["message"]["content"] == "through both"


@pytest.mark.parametrize("chunked", [False, True])
def test_large_bodies_both_ways(port, chunked):
    p = port(max_body_bytes="32MiB")
    p.gateway.start()
    text = "".join(f"{n:08d} " for n in range(500_000))     # 4.5 MB
    sid = p.gateway.post("/sessions", {}).json()["session_id"]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    c = p.connect()
    pieces = (body[n:n + 100_000] for n in range(0, len(body), 100_000))
    c.request("POST", f"/sessions/{sid}/v1/chat/completions", body=pieces if chunked else body, headers={"Content-Type": "application/json"},
              encode_chunked=chunked)
    answer = c.getresponse()
    said = answer.read()
    c.close()
    assert answer.status == 200, said[:300]
    assert json.loads(said)["choices"][0]["message"]["content"].strip().endswith(text.strip())


def test_as_many_headers_as_are_allowed(served):
    """The router adds X-Forwarded-Proto only if there is room for it."""
    lines = [f"X-N{n}: 1" for n in range(98)] + ["Accept: */*"]
    with served.socket() as s:
        s.sendall(head("GET", "/", *lines))
        assert s.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_a_request_in_records_of_one_byte(served):
    sid = served.gateway.post("/sessions", {}).json()["session_id"]
    body = json.dumps({**CALL, "messages": [{"role": "user", "content": "w " * 1000}]}).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", "X-Long: " + "x" * 1500, "Connection: close")
    with served.socket() as s:
        for byte in head("POST", f"/sessions/{sid}/v1/chat/completions", *lines) + body:
            s.sendall(bytes([byte]))
        assert read_all(s).startswith(b"HTTP/1.1 200 OK")


def test_many_requests_on_one_connection(served):
    c = served.connect()
    made = []
    for _ in range(300):
        c.request("GET", "/health")
        answer = c.getresponse()
        assert answer.status == 200 and answer.read()
        made.append(c.sock.getsockname())
    c.close()
    assert len(set(made)) == 1
    assert served.gateway.metrics()["rollgate_connections_lent"] == 0


def test_calls_of_one_connection_are_never_lent(port):
    p = port(lend_after=1)
    p.gateway.start()
    sid = p.gateway.post("/sessions", {}).json()["session_id"]
    c = p.connect()
    for _ in range(6):
        c.request("POST", f"/sessions/{sid}/v1/chat/completions", json.dumps(CALL), {"Content-Type": "application/json"})
        assert json.loads(c.getresponse().read())["choices"]
        assert p.gateway.metrics()["rollgate_connections_lent"] == 0
    c.close()


def test_pipelined_requests(served):
    with served.socket() as s:
        s.sendall(head("GET", "/health") * 20 + head("GET", "/health", "Connection: close"))
        assert read_all(s).count(b"HTTP/1.1 200 OK") == 21


def test_a_client_that_says_it_is_done_gets_its_answer(served):
    """close_notify without the end of the TCP stream, right behind the request."""
    with served.raw() as plain:
        into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = served.context().wrap_bio(into, out, server_hostname="127.0.0.1")

        def move(what):
            while True:
                try:
                    result = what()
                except ssl.SSLWantReadError:
                    result = None
                plain.sendall(out.read())
                if result is not None or what == tls.unwrap:
                    return result
                into.write(plain.recv(65536))
        move(lambda: tls.do_handshake() or True)
        tls.write(head("GET", "/health"))
        move(tls.unwrap)
        got = b""
        while part := plain.recv(65536):
            got += part
    assert len(got) > 100, "an answer, then the end"


def big_answer(p):
    """The path of an answer of some megabytes."""
    sid = p.gateway.post("/sessions", {}).json()["session_id"]
    text = "x" * 8_000_000
    assert p.gateway.post(f"/sessions/{sid}/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": text}]}).status == 200
    return f"/sessions/{sid}"


def test_a_slow_reader_gets_all_and_holds_little(port):
    p = port(max_body_bytes="32MiB")
    p.gateway.start()
    path = big_answer(p)
    whole = p.gateway.get(path).body
    assert len(whole) > 8_000_000
    router = p.gateway.child("router-0")
    with p.socket() as s:
        s.sendall(head("GET", path, "Connection: close"))
        g.wait_until(lambda: s.recv(1), what="the answer has begun")
        before = p.gateway.resident(router)
        g.stays(lambda: p.gateway.resident(router) - before < 2 << 20, 0.3, "the router holds a window, not the answer")
        got = read_all(s)
    assert len(got) > len(whole) and got.endswith(whole[-1000:] + b"\r\n0\r\n\r\n")


def test_a_reader_that_stops_is_cut(port):
    p = port(max_body_bytes="32MiB", send_timeout="1s")
    p.gateway.start()
    path = big_answer(p)
    with p.socket() as s:
        s.sendall(head("GET", path, "Connection: close"))
        g.wait_until(lambda: p.gateway.metrics()["rollgate_connections"] == 1, what="only the metrics' own connection is left")
        with pytest.raises((ssl.SSLError, OSError)):     # no proper end: the answer is not whole
            read_all(s)


def test_a_client_that_leaves_in_the_middle(port):
    p = port(max_body_bytes="32MiB")
    p.gateway.start()
    path = big_answer(p)
    router = p.gateway.child("router-0")
    before = p.gateway.descriptors(router)
    for _ in range(5):
        s = p.socket()
        s.sendall(head("GET", path))
        s.recv(1000)
        s.close()
    g.wait_until(lambda: p.gateway.descriptors(router) <= before + 1, what="the router has closed them")
    assert p.gateway.get("/health").status == 200


def test_plain_http_is_refused_in_plain_words(served):
    served.gateway.allow("handshake failed")
    c = http.client.HTTPConnection("127.0.0.1", served.gateway.port, timeout=g.PATIENCE * 20)
    c.request("POST", "/sessions", body=b"{}" * 1000)
    answer = c.getresponse()
    assert answer.status == 400 and "this port speaks TLS: use https://" in answer.read().decode()
    c.close()
    served.gateway.wait_line("a TLS handshake failed.*the client speaks plain HTTP")
    assert served.handshakes("failed") == 1


def test_old_versions_and_noise_are_refused(served):
    context = served.context(ssl.TLSVersion.TLSv1_1)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with served.raw() as plain, pytest.raises(ssl.SSLError, match="(?i)protocol.version|unsupported protocol|alert"):
        context.wrap_socket(plain, server_hostname="127.0.0.1")
    with served.raw() as plain:
        plain.sendall(b"\x16\x03\x01\x00\x05hello" + bytes(200))
        g.wait_until(lambda: not plain.recv(100), what="the end, maybe after an alert")
    g.wait_until(lambda: served.handshakes("failed") == 2, what="both are counted")
    with served.raw():
        pass        # a look whether the port is open
    assert served.gateway.get("/health").status == 200 and served.handshakes("failed") == 2


def test_a_client_without_certificate_is_refused(port, tmp_path):
    ours, other = authority(tmp_path / "ours"), authority(tmp_path / "other")
    p = port(tls_client_ca=ours / "ca.crt")
    p.gateway.start()
    for client in [None, other]:
        with pytest.raises((ssl.SSLError, ConnectionResetError)), p.socket(client=client) as s:
            s.sendall(head("GET", "/health"))
            s.recv(10)
    p.gateway.wait_line("a TLS handshake failed client=127.0.0.1:.* reason=.*certific")
    p.gateway.connect = lambda timeout=30: p.connect(timeout, client=ours)
    assert p.gateway.get("/health").status == 200
    assert p.handshakes("failed") == 2
    assert echo(p.gateway, "with a certificate").status == 200


def test_a_slow_certificate_holds_no_other_connection(port, tmp_path):
    """The check of a chain whose key has an exponent of 8,192 bits takes a second. The router answers others meanwhile."""
    ours, slow = authority(tmp_path / "ours"), tmp_path / "slow"
    slow.mkdir()
    shutil.copy(g.ROOT / "tests/data/tls/giant-exponent.pem", slow / "client.crt")
    shutil.copy(g.ROOT / "tests/data/tls/giant-exponent.key", slow / "client.key")
    p = port(tls_client_ca=ours / "ca.crt", routers=1)
    p.gateway.start()
    kept = p.connect(client=ours)

    def failed():
        kept.request("GET", "/metrics")
        return 'handshakes_total{outcome="failed"} 0' not in kept.getresponse().read().decode()
    assert not failed()
    with p.raw() as plain:
        begin_handshake(plain, p.context(client=slow))
        answers = 0
        while not failed():
            answers += 1
    kept.close()
    assert answers >= 5, "the router answers while the certificate is checked"


def begin_handshake(plain, context):
    """Sends the client's part of a handshake, without the last answer of the server."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(into, out, server_hostname="127.0.0.1")
    for read in (False, True):
        if read:
            while out.pending == 0:
                into.write(plain.recv(65536))
                with pytest.raises(ssl.SSLWantReadError):
                    tls.do_handshake()
        else:
            with pytest.raises(ssl.SSLWantReadError):
                tls.do_handshake()
        plain.sendall(out.read())


def test_connections_that_close_during_their_handshake(port):
    """The end of a job frees what its connection left, also when the router ends first."""
    p = port(key="rsa:4096", routers=1)
    p.gateway.start()
    router = p.gateway.child("router-0")
    before = p.gateway.descriptors(router)
    for _ in range(30):
        with p.raw() as plain, pytest.raises(ssl.SSLWantReadError):
            into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
            try:
                p.context().wrap_bio(into, out, server_hostname="127.0.0.1").do_handshake()
            finally:
                plain.sendall(out.read())
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")     # a reset
    g.wait_until(lambda: p.gateway.descriptors(router) <= before + 1, what="the router has closed them")
    assert p.gateway.get("/health").status == 200
    open_ones = [p.raw() for _ in range(10)]
    for plain in open_ones:
        out = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            p.context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1").do_handshake()
        plain.sendall(out.read())
    p.gateway.stop()
    for plain in open_ones:
        plain.close()


def test_stalled_handshakes_end_and_hold_nobody(port):
    p = port(header_timeout="1s")
    p.gateway.start()
    stalled = [p.raw() for _ in range(20)]
    for n, s in enumerate(stalled):
        s.sendall(b"\x16\x03\x01\x02\x00\x01\x00"[:n % 8])
    for _ in range(20):
        assert p.gateway.get("/health").status == 200
    for s in stalled:
        g.wait_until(lambda s=s: s.recv(1) == b"", what="it is closed")
        s.close()
    assert p.handshakes("failed") == 20
    p.gateway.wait_line("a TLS handshake failed.*within --header-timeout")


def test_many_handshakes_at_once(served):
    def shake(_):
        with served.socket() as s:
            s.sendall(head("GET", "/health", "Connection: close"))
            assert b"200 OK" in read_all(s)
    g.in_parallel(shake, range(40))
    assert served.handshakes("failed") == 0


class Shake:
    """A handshake by hand: nothing is read before it is asked for. The first flight is sent by advance()."""

    def __init__(self, p, context):
        self.plain, self.into, self.out = p.raw(), ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.into, self.out, server_hostname="127.0.0.1")

    def advance(self):
        """Sends what there is to send; True when the handshake is over."""
        try:
            self.tls.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            done = False
        self.plain.sendall(self.out.read())
        return done

    def finish(self):
        while not self.advance():
            self.into.write(self.plain.recv(65536))

    def has_answer(self):
        return bool(select.select([self.plain], [], [], 0)[0])


def shakes(p, n):
    """n connections that send their first flights at the same time."""
    context = p.context()
    made = [Shake(p, context) for _ in range(n)]
    for s in made:
        s.advance()
    return made


def test_the_oldest_handshake_ends_first(port):
    """Its second flight is served before the first flights of those that came later."""
    p = port(key="rsa:4096", routers=1)
    p.gateway.start()
    made = shakes(p, 60)
    made[0].finish()
    waits = not made[-1].has_answer()
    for s in made[1:]:
        s.finish()
    g.wait_until(lambda: p.handshakes("done") >= len(made), 20, "the gateway has their last flights")
    for s in made:
        s.plain.close()
    assert waits, "the last one still waited"
    assert p.handshakes("failed") == p.handshakes("refused") == 0


def test_handshakes_that_wait_too_long_are_refused(port):
    p = port(key="rsa:4096", routers=1, header_timeout="500ms")
    p.gateway.allow("handshake failed")
    p.gateway.start()
    kept = p.connect()
    kept.request("GET", "/health")
    kept.getresponse().read()
    waiting = shakes(p, 150)
    p.gateway.wait_line("a TLS handshake failed client=.*refused: it waited for other handshakes for --header-timeout")

    def refused():
        kept.request("GET", "/metrics")
        return int(re.search(r'handshakes_total{outcome="refused"} (\d+)', kept.getresponse().read().decode())[1])
    g.wait_until(lambda: refused() > 20, what="those at the end of the queue are refused")
    kept.close()
    for s in waiting:
        s.plain.close()
    g.wait_until(lambda: quietly(lambda: p.gateway.get("/health").status == 200), what="others are served then")


def test_clients_that_have_left_cost_nothing(port):
    """A first flight is dropped when its client closes, before it has cost a signature."""
    p = port(key="rsa:4096", routers=1)
    p.gateway.allow("handshake failed")
    p.gateway.start()
    router = p.gateway.child("router-0")

    def ticks():
        fields = open(f"/proc/{router}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    before = ticks()
    for _ in range(10):
        p.socket().close()
    ten = ticks() - before
    before = ticks()
    for s in shakes(p, 100):
        s.plain.close()
    g.wait_until(lambda: p.handshakes("failed") >= 60, what="those that waited are counted")
    p.socket().close()
    assert ticks() - before < 7 * max(ten, 1), "100 would have cost ten times as much"


def test_hup_reads_a_new_certificate(served, tmp_path):
    def shown():
        with served.socket() as s:
            return s.getpeercert(True)
    first = shown()
    kept = served.connect()
    kept.request("GET", "/health")
    kept.getresponse().read()
    for name, path in certificate(tmp_path / "new", "new.test").items():
        os.rename(path, served.files[name])
    served.gateway.signal(signal.SIGHUP)
    served.gateway.wait_line("configuration reloaded")
    g.wait_until(lambda: shown() != first, what="the new one is shown")
    kept.request("GET", "/health")
    assert kept.getresponse().read() and kept.sock.getpeercert(True) == first, "a connection keeps its own"
    kept.close()
    second = shown()
    served.files["tls_certificate"].write_text("nothing")
    served.gateway.allow("tls-certificate")
    served.gateway.signal(signal.SIGHUP)
    served.gateway.wait_line("--tls-certificate: .*tls.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with served.raw() as plain, context.wrap_socket(plain) as s:
        assert s.getpeercert(True) == second, "a wrong file changes nothing"


def install(source, folder, suffix=""):
    """Copies the three files to names with the suffix; makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tls.crt", "tls.key", "keys"):
        shutil.copy(source / name, folder / f"{name}{suffix}")


def point(link, target):
    """Makes the link, or replaces it as certbot and the kubelet do."""
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f"{link.name}.new")
    fresh.symlink_to(target)
    os.rename(fresh, link)


def certbot(root, source, n):
    """live/gw/tls.crt is a link to ../../archive/gw/tls.crtN."""
    install(source, root / "archive/gw", n)
    for name in ("tls.crt", "tls.key", "keys"):
        point(root / "live/gw" / name, f"../../archive/gw/{name}{n}")
    return root / "live/gw"


def kubernetes(root, source, n):
    """The files are links through ..data, which is a link to a new folder each time."""
    install(source, root / f"secret/..2026_{n}")
    point(root / "secret/..data", f"..2026_{n}")
    for name in ("tls.crt", "tls.key", "keys"):
        if n == 1:
            point(root / "secret" / name, f"..data/{name}")
    return root / "secret"


def kubernetes_and_a_link(root, source, n):
    """The settings name a link to the files of the secret."""
    secret = kubernetes(root, source, n)
    for name in ("tls.crt", "tls.key", "keys"):
        if n == 1:
            point(root / "etc" / name, secret / name)
    return root / "etc"


def release(root, source, n):
    """A link above the folder of the files is replaced, and leads to a different one."""
    install(source, root / f"releases/{n}/etc/tls")
    point(root / "opt/current", f"../releases/{n}")
    return root / "opt/current/etc/tls"


@pytest.mark.parametrize("layout", [certbot, kubernetes, kubernetes_and_a_link, release])
def test_hup_reads_what_links_lead_to(port, tmp_path, layout):
    """Certificate, key and keys of the control plane are renewed by the change of a link."""
    source, root = tmp_path / "source", tmp_path / "root"
    for n in (1, 2):
        certificate(source)
        (source / "keys").write_text(f"key-{n}\n")
        (source / "keys").chmod(0o600)
        folder = layout(root, source, n)
        if n == 1:
            p = port(admin_key_file=folder / "keys", tls_certificate=folder / "tls.crt", tls_key=folder / "tls.key")
            p.files["tls_certificate"] = folder / "tls.crt"     # what the client trusts
            p.gateway.start()
        else:
            p.gateway.signal(signal.SIGHUP)
            p.gateway.wait_line("configuration reloaded")

        def accepted(n=n):
            with p.socket():        # trusts the new certificate alone
                return p.gateway.get("/sessions", headers={"Authorization": f"Bearer key-{n}"}).status == 200
        if n == 1:
            assert accepted()
        else:
            g.wait_until(lambda: quietly(accepted), what="certificate and key are the new ones")


def quietly(accepted):
    try:
        return accepted()
    except ssl.SSLError:
        return False


def test_an_upgrade_keeps_the_port(served):
    kept = served.connect()
    kept.request("GET", "/health")
    kept.getresponse().read()
    served.gateway.signal(signal.SIGUSR2)
    g.wait_until(lambda: served.gateway.get("/health").status == 200 and len(re.findall(r"supervisor \d+ serving ", served.gateway.log())) == 2,
                 60, "the new binary serves, and nobody was refused")
    assert echo(served.gateway, "after it").status == 200
    kept.close()


def test_top_doctor_and_support_ask_over_tls(port, tmp_path):
    """Whatever the certificate names: they expect the one in --tls-certificate."""
    served = port()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/CN=gw.example", "-addext",
                    "subjectAltName=DNS:gw.example", "-keyout", served.files["tls_key"], "-out", served.files["tls_certificate"]],
                   check=True, capture_output=True)
    named = served.context

    def context(**more):
        c = named(**more)
        c.check_hostname = False
        return c
    served.context = context
    served.gateway.start()
    top = subprocess.run([str(g.BINARY), "top", "--once", *served.gateway.arguments()[2:]], capture_output=True, text=True, timeout=g.PATIENCE * 60)
    assert top.returncode == 0, top.stdout + top.stderr
    doctor = subprocess.run([str(g.BINARY), "doctor", *served.gateway.arguments()[2:]], capture_output=True, text=True, timeout=g.PATIENCE * 120)
    assert "a gateway runs here" in doctor.stdout, doctor.stdout + doctor.stderr
    support = [str(g.BINARY), "support", tmp_path / "packed", *served.gateway.arguments()[2:]]
    assert subprocess.run(support, capture_output=True, timeout=g.PATIENCE * 120).returncode == 0
    assert "rollgate_tls_handshakes_total" in (tmp_path / "packed/metrics.txt").read_text()
    certificate(tmp_path / "tls", "other.example")
    top = subprocess.run([str(g.BINARY), "top", "--once", *served.gateway.arguments()[2:]], capture_output=True, text=True, timeout=g.PATIENCE * 60)
    assert top.returncode != 0 and "certificate refused: it is not the one in the given file" in top.stdout + top.stderr


def other_key(files):
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", files["tls_key"]], check=True)


def odd_key(files):
    subprocess.run(["openssl", "ecparam", "-name", "brainpoolP256r1", "-genkey", "-noout", "-out", files["tls_key"]], check=True)


@pytest.mark.parametrize("change, says", [
    ({"tls_key": None}, "--tls-key: --listen ADDRESS,tls needs it"),
    ({"tls_certificate": None}, "--tls-certificate: --listen ADDRESS,tls needs it"),
    ({"tls_certificate": "/no/file"}, "--tls-certificate: /no/file: No such file"),
    (lambda files: os.chmod(files["tls_key"], 0o644), "can be read by every user: chmod 600 it"),
    (lambda files: files["tls_certificate"].write_text("no PEM"), "--tls-certificate: TLS: "),
    (lambda files: files["tls_key"].write_text("no PEM"), "--tls-key: TLS: "),
    (other_key, "is not the key of the certificate in"),
    (odd_key, "the key must be RSA, or ECDSA on P-256, P-384 or P-521"),
    ({"tls_client_ca": "/no/ca"}, "--tls-client-ca: /no/ca: No such file"),
    ({"front": "nginx"}, "--front: nginx reaches the port by plain HTTP"),
    ({"peer": "256-511=127.0.0.1:9"}, "--peer: nodes reach each other by plain HTTP"),
    ({"runners": "/no/runners"}, "--runners: its executor reaches the port by plain HTTP"),
    ({"listen": "127.0.0.1:0,ssl"}, '--listen: "ssl" is no option: tls is the only one'),
    ({"listen": "127.0.0.1:0,tls,tls"}, '--listen: "tls,tls" is no option'),
    ({"listen": "127.0.0.1:0"}, "--tls-certificate: has no effect without --front nginx or --listen ADDRESS,tls"),
    ({"listen": "127.0.0.1:0", "tls_certificate": None, "tls_key": None, "tls_client_ca": "/no/ca"},
     "--tls-client-ca: has no effect without --listen ADDRESS,tls"),
])
def test_wrong_settings_are_named(port, change, says):
    p = port()
    if callable(change):
        change(p.files)
    else:
        p.gateway.settings.update({name.replace("_", "-"): value for name, value in change.items()})
    p.gateway.start(wait=False)
    assert p.gateway.wait() == 2
    assert says in p.gateway.log()


def test_nginx_config_needs_a_plain_port(tmp_path):
    files = [f"--{name.replace('_', '-')}={path}" for name, path in certificate(tmp_path / "tls").items()]
    done = subprocess.run([g.BINARY, "nginx-config", "--listen=127.0.0.1:1,tls", *files, "--server-name=gw.test", "--certificate=c", "--certificate-key=k"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and '--listen: nginx reaches the port by plain HTTP: leave out ",tls"' in done.stderr
