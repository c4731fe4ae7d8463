"""TLS engines of a whole gateway: the name is sent (SNI) and verified, sessions are resumed, and an engine that fails
verification is refused with a log line that says why."""
import pathlib
import ssl
import threading

import pytest

import gateway as g
from gateway import wait_until
from stub_engines import StubEngine

FOLDER = pathlib.Path(__file__).parents[2] / "data/tls"
GOOD = {"ids": list(b"ok") + [257], "matched": 257}
ASK = {"messages": [{"role": "user", "content": "hi"}]}


class TlsEngine(StubEngine):
    """Notes the names that clients ask for and which connections resume a session."""

    def __init__(self, cert, **more):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(FOLDER / f"{cert}.pem", FOLDER / f"{cert}.key")
        context.sni_callback = lambda conn, name, ctx: self.names.append(name)
        super().__init__(tls=context, **more)
        self.names, self.resumed, self.versions = [], [], set()
        self.otherwise = lambda body: GOOD

    async def serve(self, reader, writer):
        conn = writer.get_extra_info("ssl_object")
        self.resumed.append(conn.session_reused)
        self.versions.add(conn.version())
        await super().serve(reader, writer)

    def setting_at(self, host):
        return f"{self.kind}:https://{host}:{self.port}"


def call(gateway, sid=None):
    sid = sid or gateway.post("/sessions", {}).json()["session_id"]
    return gateway.post(f"/sessions/{sid}/v1/chat/completions", ASK)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_good_certificate(start, host):
    with TlsEngine("good") as engine:
        gateway = start(workers=1, engine=engine.setting_at(host), engine_ca_file=str(FOLDER / "ca.pem"))
        assert call(gateway).status == 200
        assert set(engine.names) == ({"localhost"} if host == "localhost" else set()) or set(engine.names) == {None}
        assert engine.versions == {"TLSv1.2"}
        wait_until(lambda: gateway.get("/ready").status == 200, 10, "ready")


def test_sessions_are_resumed_and_connections_kept(start):
    with TlsEngine("good") as engine:
        gateway = start(workers=1, engine=engine.setting_at("localhost"), engine_ca_file=str(FOLDER / "ca.pem"), engine_health_interval="1h")
        assert call(gateway).status == 200
        go = threading.Event()
        engine.otherwise = lambda body: {**GOOD, "wait": go}
        threads = [threading.Thread(target=call, args=(gateway,)) for _ in range(4)]
        for t in threads:
            t.start()
        wait_until(lambda: engine.running == 4, 10, "four calls at once")
        go.set()
        for t in threads:
            t.join()
        assert len(engine.resumed) >= 4 and all(engine.resumed[2:]), engine.resumed  # the first ones may have begun together
        n = engine.connections
        for _ in range(5):
            assert call(gateway).status == 200
        assert engine.connections == n


@pytest.mark.parametrize("cert,host,ca,why", [
    ("expired", "localhost", "ca.pem", "expired"),
    ("other", "localhost", "ca.pem", "does not match"),
    ("other", "127.0.0.1", "ca.pem", "does not name this address"),
    ("good", "localhost", None, "not correctly signed by the trusted CA"),  # the system's bundle does not know the tests' CA
    ("good", "localhost", "other.pem", "not correctly signed by the trusted CA"),
], ids=["expired", "wrong-name", "wrong-address", "unknown-ca", "another-ca"])
def test_bad_certificates_are_refused(start, cert, host, ca, why):
    if ca is None and not pathlib.Path("/etc/ssl/certs/ca-certificates.crt").exists():
        pytest.skip("no bundle of the system")
    with TlsEngine(cert) as engine:
        gateway = start(workers=1, engine=engine.setting_at(host), engine_ca_file=str(FOLDER / ca) if ca else None,
                        engine_retries=0, engine_health_interval="100ms", queue_timeout="500ms")
        gateway.allow("refused")
        a = call(gateway)
        assert a.status == 503 and a.json()["error"]["code"] == "engine_unavailable"
        assert not engine.requests  # nothing of the prompt went out
        gateway.wait_line(f"certificate refused: .*{why}")
        wait_until(lambda: gateway.get("/ready").status == 503, 10, "not ready")


def test_insecure_is_said_aloud(start):
    with TlsEngine("expired") as engine:
        gateway = start(workers=1, engine=engine.setting_at("localhost"), engine_insecure_tls="on")
        assert call(gateway).status == 200
        gateway.wait_line("NOT checked")


def test_a_bad_ca_file_is_a_start_error(tmp_path):
    (tmp_path / "ca.pem").write_text("nonsense\n")
    gateway = g.Gateway(workers=1, engine="sglang:https://localhost:1", engine_ca_file=str(tmp_path / "ca.pem"), max_restarts=1)
    gateway.allow(".*").start(wait=False)
    assert gateway.wait(60) != 0
    assert gateway.has_line("ca.pem")
