"""Who may come in and how much of him: unfinished bodies per key, address and worker, bodies that trickle,
silent connections, connections of one key and one address."""
import contextlib
import json
import resource
import select
import socket
import threading
import time

import pytest

import gateway as g
from router_kit import Client, Router, Worker
from test_authorization import ADMIN, CALL, bearer, executors_key, new

MIB = 1 << 20
PATH = "/v1/chat/completions"
SECRET = b"a secret of this test, long enough 0123456789"


@pytest.fixture
def bench(tmp_path):
    """A router with these flags over one recording worker."""
    made = []

    def make(*flags):
        worker = Worker(tmp_path / "w0.sock")
        router = Router(tmp_path, [f"unix:{worker.path}"], *flags)
        made.append((router, worker))
        return router, worker

    yield make
    for router, worker in made:
        worker.close()
        router.stop()


@pytest.fixture
def descriptors():
    """As many as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def head(length, *headers, path=PATH):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
            + "".join(h + "\r\n" for h in headers) + "\r\n").encode()


def fill(sock, n):
    """Sends n bytes of a body, or as many as are taken before the answer comes."""
    block = b"x" * 65536
    with contextlib.suppress(OSError):
        while n > 0:
            sock.sendall(block[:min(n, len(block))])
            n -= len(block)


def status_of(sock):
    """The status of the answer that comes, and its text."""
    data = b""
    with contextlib.suppress(OSError):
        while chunk := sock.recv(65536):
            data += chunk
            if b"\r\n\r\n" in data and data.endswith(b"\n"):
                break
    return (int(data.split()[1]), data.decode()) if data else (None, "")


def answered(socks):
    """One of the sockets on which an answer has come."""
    return g.wait_until(lambda: next(iter(select.select(socks, [], [], 0.1)[0]), None), 60, "somebody is answered")


def metric(gateway, name, **labels):
    return sum(value for key, value in gateway.metrics().items() if key.split("{")[0] == "rollgate_" + name
               and all(f'{k}="{v}"' in key for k, v in labels.items()))


def resident(gateway):
    return gateway.resident(gateway.child("worker-0"))


# --- bodies ---

@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_unfinished_bodies_leave_a_worker_its_memory(start, framing):
    budget, each, n = 128 * MIB, 24 * MIB, 30
    gateway = start(engine="builtin:echo", workers=1, max_body_bytes="32MiB", max_worker_body_bytes=str(budget),
                    max_address_body_bytes="0")
    before = resident(gateway)
    socks = [socket.create_connection(("127.0.0.1", gateway.port), 30) for _ in range(n)]
    for s in socks:
        if framing == "length":
            s.sendall(head(32 * MIB))
        else:
            s.sendall(head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"%x\r\n" % (32 * MIB))
        fill(s, each)
        assert metric(gateway, "unfinished_body_bytes") <= budget
    # a buffer is moved when it grows, and what was freed may stay with the allocator
    assert resident(gateway) - before < 2 * budget     # 30 x 24 MiB would be 720
    assert metric(gateway, "refusals_total", reason="unfinished_bodies") >= n // 2
    assert gateway.post("/sessions", {}).status == 200      # others are served all the while
    status, text = status_of(answered(socks))
    assert status == 429 and "--max-worker-body-bytes" in text
    assert json.loads(text.split("\r\n\r\n")[1])["error"]["code"] == "overloaded"
    for s in socks:
        s.close()
    g.wait_until(lambda: metric(gateway, "unfinished_body_bytes") == 0)


def test_a_confirmed_answer_leaves_no_unfinished_body(start):
    """The router confirms each answer on its link to the worker by an empty line, which is no request."""
    gateway = start(engine="builtin:echo", workers=1)
    assert gateway.post("/sessions", {}).status == 200
    g.stays(lambda: metric(gateway, "unfinished_body_bytes") == 0, 0.3, "a confirmation follows its answer at once")


def test_whoever_has_most_of_an_address_is_refused_and_the_small_one_is_not(bench):
    router, worker = bench("--max-body-bytes", "4MiB", "--max-address-body-bytes", "8MiB")
    with Client(router) as small, Client(router) as a, Client(router) as b, Client(router) as c:
        small.send(head(1000) + b"x" * 500)
        for client, n in ((a, 4 * MIB - 1), (b, 3 * MIB), (c, 2 * MIB)):
            client.send(head(4 * MIB))
            fill(client.sock, n)
        status, headers, body = a.answer()
        assert status == 429 and dict(headers)["x-should-retry"] == "true"
        assert b"--max-address-body-bytes" in body and a.ended()
        assert router.metric("rollgate_refusals_total") == 1
        small.send(b"x" * 500)
        b.send(b"x" * MIB)
        c.send(b"x" * 2 * MIB)
        assert [client.answer()[0] for client in (small, b, c)] == [200] * 3
    assert sorted(len(r.body) for r in worker.requests) == [1000, 4 * MIB, 4 * MIB]


def test_very_many_very_small_chunks_are_refused(bench):
    """Not few of them, nor many that have some bytes."""
    router, worker = bench()
    start = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % PATH.encode()
    for chunk, n, status in ((b"1\r\nx\r\n", 16_000, 200), (b"10\r\n" + b"x" * 16 + b"\r\n", 40_000, 200), (b"1\r\nx\r\n", 40_000, 400)):
        with Client(router) as c:
            with contextlib.suppress(OSError):
                c.send(start + chunk * n + b"0\r\n\r\n")
            got, _, body = c.answer()
            assert got == status and (status == 200 or b"too small" in body), (got, body)
    assert [len(r.body) for r in worker.requests] == [16_000, 640_000]


def test_bytes_that_wait_in_sockets_count(bench):
    """Of long bodies a router is woken for a megabyte at a time; less of each together is too much here."""
    router, _ = bench("--max-body-bytes", "4MiB", "--max-address-body-bytes", "8MiB")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(router)) for _ in range(4)]
        for client in clients:
            client.send(head(4 * MIB))
            fill(client.sock, 5 * MIB // 4)
        g.wait_until(lambda: router.metric("rollgate_relayed_bytes_total") >= MIB, 10, "it has seen some")
        for client in clients:
            fill(client.sock, 900_000)
        heard, _, _ = select.select([c.sock for c in clients], [], [], 10)
        assert heard, "none of them was refused"
        refused = next(c for c in clients if c.sock is heard[0])
        status, _, body = refused.answer()
        assert status == 429 and b"--max-address-body-bytes" in body


def test_one_session_s_unfinished_bodies_are_bounded_and_another_s_go_through(start, tmp_path):
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    gateway = start(engine="builtin:echo", workers=1, admin_key_file=str(tmp_path / "admin-keys"),
                    max_body_bytes="4MiB", max_key_body_bytes="6MiB")
    greedy, other = new(gateway), new(gateway)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 30)) for _ in range(3)]
        for s in socks:
            s.sendall(head(4 * MIB, f"Authorization: Bearer {greedy['api_key']}"))
            fill(s, 3 * MIB)
        status, text = status_of(answered(socks))
        assert status == 429 and "--max-key-body-bytes" in text
        assert gateway.post(PATH, CALL, headers=bearer(other["api_key"])).status == 200
        assert gateway.post(PATH, CALL, headers=bearer(greedy["api_key"])).status == 200    # a small one of his, too


def test_a_complete_body_counts_no_longer(bench):
    router, worker = bench("--max-body-bytes", "4MiB", "--max-address-body-bytes", "4MiB")
    with Client(router) as c:
        for _ in range(4):
            assert c.ask("POST", PATH, b"x" * 3 * MIB)[0] == 200
    assert len(worker.requests) == 4


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_trickles_is_cut_with_408(bench, framing):
    router, worker = bench("--body-timeout", "500ms")
    with Client(router) as c:
        c.send(head(1000) if framing == "length" else
               head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        start = time.monotonic()
        while not select.select([c.sock], [], [], 0.1)[0]:     # well within --body-timeout
            assert time.monotonic() < start + 60
            c.send(b"x" if framing == "length" else b"1\r\nx\r\n")
        assert c.answer()[0] == 408
    assert worker.requests == []


def test_a_body_at_the_least_rate_goes_through(bench):
    router, worker = bench("--body-timeout", "1s", "--min-body-rate", "10")
    with Client(router) as c:
        c.send(head(400))
        for _ in range(20):                                  # two seconds at least, and each piece is worth two
            assert not select.select([c.sock], [], [], 0.1)[0]
            c.send(b"x" * 20)
        assert c.answer()[0] == 200
    assert len(worker.requests[0].body) == 400


def test_time_that_the_worker_takes_is_not_the_client_s(bench):
    router, worker = bench("--body-timeout", "300ms", "--min-body-rate", "1MiB")
    go = threading.Event()

    def slow(_conn, _first, _headers, _reader):
        go.wait(10)
        return False

    worker.on_head = slow
    with Client(router) as c:
        c.send(head(4 * MIB))
        sender = threading.Thread(target=fill, args=(c.sock, 4 * MIB))
        sender.start()
        assert not select.select([c.sock], [], [], 1.0)[0]     # thrice the time, and no 408
        go.set()
        assert c.answer()[0] == 200
        sender.join()


# --- connections ---

def test_silent_connections_make_room_for_a_new_client(bench, descriptors):
    limit, n = 2000, 3000
    if descriptors < n + 500:
        pytest.skip(f"{descriptors} descriptors are too few")
    router, _ = bench("--max-connections", str(limit))
    with contextlib.ExitStack() as stack:
        known = stack.enter_context(Client(router))
        assert known.ask("GET", PATH)[0] == 200
        silent = [stack.enter_context(Client(router)) for _ in range(n)]
        with Client(router) as new_one:
            assert new_one.ask("GET", PATH)[0] == 200
        assert known.ask("GET", PATH)[0] == 200                # older than all, but not a stranger
        assert router.metric("rollgate_connections_dropped_total") >= n - limit
        assert silent[0].ended()


def test_strangers_leave_also_after_half_a_head_and_questions_to_the_router(bench):
    router, _ = bench("--max-connections", "4")
    with Client(router) as half, Client(router) as asked, Client(router) as known:
        half.send(b"POST / HT")
        assert asked.ask("GET", "/health")[0] == 200
        assert known.ask("GET", PATH)[0] == 200
        with Client(router) as a, Client(router) as b, Client(router) as c:
            for client in (a, b, c):
                assert client.ask("GET", PATH)[0] == 200
            assert half.ended() and asked.ended()
            assert known.ask("GET", PATH)[0] == 200


@pytest.mark.parametrize("target", ["/health", "/", "/ui"])
def test_with_keys_a_stranger_is_who_shows_no_good_one(start, tmp_path, target):
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    gateway = start(engine="builtin:echo", workers=1, routers=1, admin_key_file=str(tmp_path / "admin-keys"),
                    max_connections=8)
    mine = new(gateway)
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            c = stack.enter_context(Client(gateway_as_router(gateway)))
            assert c.ask("GET", target)[0] == 200
        assert gateway.post(PATH, CALL, headers=bearer(mine["api_key"])).status == 200


def start_with_secret(start, tmp_path, **limits):
    """A gateway of one router with an admin's key, whose secret we know."""
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    (tmp_path / "secret").write_text(SECRET.decode() + "\n")
    return start(engine="builtin:echo", workers=1, routers=1, admin_key_file=str(tmp_path / "admin-keys"),
                 key_secret_file=str(tmp_path / "secret"), **limits)


def test_who_shows_a_good_key_to_the_dispatcher_is_no_stranger(start, tmp_path):
    """Executors between two claims, trainers between two looks at their groups: silent connections do not push them out."""
    gateway = start_with_secret(start, tmp_path, max_connections=8)
    door = gateway_as_router(gateway)
    with contextlib.ExitStack() as stack:
        executor, trainer = (stack.enter_context(Client(door)) for _ in range(2))

        def both():
            return claim(executor, "x"), trainer.ask("GET", "/groups", None, f"Authorization: Bearer {ADMIN}")[0]
        assert both() == (200, 200)
        silent = [stack.enter_context(Client(door)) for _ in range(12)]
        assert silent[0].ended()
        assert both() == (200, 200)


def claim(client, name, *more):
    """The status of an executor's claim that waits for nothing."""
    body = json.dumps({"executor": name, "slots": {"none": 1}, "wait_s": 0}).encode()
    return client.ask("POST", "/attempts/claim", body, f"Authorization: Bearer {executors_key(SECRET, name)}", *more)[0]


def renew(client, name):
    body = json.dumps({"executor": name, "attempts": []}).encode()
    return client.ask("POST", "/attempts/renew", body, f"Authorization: Bearer {executors_key(SECRET, name)}")[0]


def test_who_has_its_share_pushes_nobody_out(bench):
    """A connection that its address has no right to is refused before anybody makes room for it."""
    router, _ = bench("--max-connections", "3", "--max-address-connections", "2")
    with contextlib.ExitStack() as stack:
        elsewhere = stack.enter_context(socket.create_connection(("127.0.0.1", router.port), 10, source_address=("127.0.0.9", 0)))
        for _ in range(2):
            stack.enter_context(Client(router))
        with Client(router) as over:
            status, _, body = over.answer()
            assert status == 429 and b"--max-address-connections" in body
        elsewhere.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        said = b"".join(iter(lambda: elsewhere.recv(65536), b""))
        assert b" 200 " in said and b"\nrollgate_connections_dropped_total 0\n" in said


def test_refused_connections_take_no_place_of_others(bench):
    """They stay for a while where their clients do not close them."""
    router, _ = bench("--max-connections", "3", "--max-address-connections", "2")
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(Client(router))
        for _ in range(5):
            assert stack.enter_context(Client(router)).answer()[0] == 429
        elsewhere = stack.enter_context(socket.create_connection(("127.0.0.1", router.port), 10, source_address=("127.0.0.9", 0)))
        elsewhere.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        said = b"".join(iter(lambda: elsewhere.recv(65536), b""))
        assert b" 200 " in said and b"\nrollgate_connections_dropped_total 0\n" in said


def gateway_as_router(gateway):
    class Door:
        def connect(self, timeout=10):
            return socket.create_connection(("127.0.0.1", gateway.port), timeout)
    return Door()


def test_connections_of_one_address_are_bounded(bench):
    router, _ = bench("--max-address-connections", "3")
    with Client(router) as a, Client(router) as b, Client(router) as c, Client(router) as over:
        status, _, body = over.answer()
        assert status == 429 and b"--max-address-connections" in body and over.ended()
        over.close()
        assert [x.ask("GET", PATH)[0] for x in (a, b, c)] == [200] * 3
        elsewhere = socket.create_connection(("127.0.0.1", router.port), 10, source_address=("127.0.0.9", 0))
        elsewhere.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in elsewhere.recv(4096)
        elsewhere.close()


def test_connections_of_one_session_are_bounded(start, tmp_path):
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    gateway = start(engine="builtin:echo", workers=1, routers=1, admin_key_file=str(tmp_path / "admin-keys"),
                    max_key_connections=2)
    mine, other = new(gateway), new(gateway)
    door = gateway_as_router(gateway)
    key = f"Authorization: Bearer {mine['api_key']}"
    with Client(door) as a, Client(door) as b, Client(door) as c:
        for client in (a, b, a, b):
            assert client.ask("GET", "/v1/models", None, key)[0] == 200
        status, _, body = c.ask("GET", "/v1/models", None, key)
        assert status == 429 and b"--max-key-connections" in body
        assert gateway.get("/v1/models", headers=bearer(other["api_key"])).status == 200
        # the trainer's own key of the session is not the agent's
        assert gateway.get(f"/sessions/{mine['session_id']}", headers=bearer(mine["runner_key"])).status == 200
        a.close()
        g.wait_until(lambda: gateway.get("/v1/models", headers=bearer(mine["api_key"])).status == 200)
    assert metric(gateway, "refusals_total", reason="key_connections") >= 1


@pytest.mark.parametrize("limits", [{"max_connections": 8}, {"descriptors": 192}], ids=["setting", "descriptors"])
def test_one_key_leaves_connections_to_others(start, tmp_path, limits):
    """--max-key-connections is 1,024: where the router has fewer in all, one key gets half of them."""
    (tmp_path / "admin-keys").write_text(ADMIN + "\n")
    few = limits.pop("descriptors", None)
    gateway = g.Gateway(engine="builtin:echo", workers=1, routers=1, admin_key_file=str(tmp_path / "admin-keys"), **limits)
    if few:
        gateway.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few)))
    else:
        gateway.start()
    mine, other = new(gateway), new(gateway)
    key = f"Authorization: Bearer {mine['api_key']}"
    with contextlib.ExitStack() as stack:
        for n in range(few or 8):
            client = stack.enter_context(Client(gateway_as_router(gateway)))
            status, _, body = client.ask("GET", "/v1/models", None, key)
            if status != 200:
                break
        assert status == 429 and b"--max-key-connections" in body, (n, status)
        assert n >= 2 and gateway.get("/v1/models", headers=bearer(other["api_key"])).status == 200
    gateway.stop()


def test_connections_of_one_executor_are_bounded(start, tmp_path):
    """Else its claims that wait take all that the dispatcher accepts."""
    gateway = start_with_secret(start, tmp_path, max_key_connections=2)
    door = gateway_as_router(gateway)

    def claimed(name):
        with Client(door) as c:     # a refusal before the body ends the connection
            return claim(c, name)
    with Client(door) as a, Client(door) as b:
        assert [claim(client, "x") for client in (a, b, a)] == [200] * 3
        assert claimed("x") == 429
        assert claimed("y") == 200      # another's key
        # a renewal comes behind claims that wait: else what runs is taken for lost
        with Client(door) as c, Client(door) as d:
            assert renew(c, "x") == 200 and renew(d, "x") == 429
        a.close()
        g.wait_until(lambda: claimed("x") == 200, what="a place is free")
    assert metric(gateway, "refusals_total", reason="key_connections") >= 1
