"""Several nodes without a store: which node serves a request, which forwards it, and the reports of two nodes that do
not match."""
import json
import os
import shutil
import socket
import subprocess
import threading

import pytest

import gateway as g
from router_kit import ID, Client, Router, Worker
from test_deploy import Nginx
from test_rollouts_nodes import ip, nodes  # noqa: F401  (a fixture)

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
ADMIN = "an-admin-key-of-this-test"


def node(base, *peers, **more):
    """A gateway with these worker indexes; a peer is (FIRST-LAST, port)."""
    return g.Gateway(**{"engine": "builtin:echo", "workers": 1, "worker_base": base,
                        "peer": [f"{span}=127.0.0.1:{port}" for span, port in peers], **more})


def sessions_of(gateway, **headers):
    return [row["session_id"] for row in gateway.get("/sessions?local=1", headers=headers).json()["sessions"]]


def code(answer):
    error = answer.json()["error"]
    return error.get("code") or error["type"]


def test_a_request_for_a_peers_index_is_served_there(start):
    b = node(4).start()
    a = node(0, ("4-7", b.port)).start()
    made = b.post("/sessions", {}).json()
    session = made["session_id"]
    assert session.startswith("w4-")
    answer = a.post(f"/sessions/{session}/v1/chat/completions", CHAT)
    assert answer.status == 200
    assert a.post("/v1/chat/completions", CHAT, headers={"x-api-key": made["api_key"]}).status == 200
    assert a.get(f"/sessions/{session}").json()["session_id"] == session
    assert sessions_of(a) == [] and sessions_of(b) == [session]
    fork = a.post(f"/sessions/{session}/fork", {"response_id": answer.json()["id"]})
    assert fork.status in (200, 201) and fork.json()["base_url"].startswith(a.url)
    missing = a.post(f"/sessions/{ID % 5}/v1/chat/completions", CHAT)
    assert missing.status == 421 and code(missing) == "misdirected"       # the peer has one worker only
    assert sessions_of(a) == [] and len(sessions_of(b)) == 2


@pytest.mark.parametrize("settings", [{"worker_base": 8}, {"worker_base": 0}, {"worker_base": None, "peer": "100-101=127.0.0.1:9"}])
def test_an_index_of_no_known_node_is_misdirected_on_every_path(settings):
    s = node(0, **settings).start()
    first = settings["worker_base"] or 0
    for index in (first + 1, first + 300, 900000):
        for method, tail in (("POST", "/v1/chat/completions"), ("POST", "/v1/messages"), ("GET", ""), ("GET", "/trajectories"),
                             ("DELETE", ""), ("POST", "/finalize"), ("POST", "/reward_info"), ("GET", "/wait"), ("POST", "/abort")):
            answer = s.request(method, f"/sessions/{ID % index}{tail}", CHAT if method == "POST" else None)
            assert answer.status == 421, (index, tail, answer.text)
            assert "--peer" in answer.text and (tail == "/v1/messages" or code(answer) == "misdirected")
        answer = s.post("/v1/chat/completions", CHAT, headers={"Authorization": f"Bearer rga-{ID % index}-{'0' * 64}"})
        assert answer.status == 421 and code(answer) == "misdirected"
    assert s.get("/sessions").json()["sessions"] == []


def test_a_node_alone_without_a_base_misdirects_nothing(start):
    s = start(engine="builtin:echo", workers=1)
    assert s.get(f"/sessions/{ID % 5}").status != 421


def test_with_keys_a_foreign_nodes_key_is_misdirected_or_forwarded_never_refused(tmp_path):
    """Each node has a secret of its own: only the owner can judge the key."""
    (tmp_path / "admin").write_text(ADMIN + "\n")
    b = node(4, admin_key_file=f"{tmp_path}/admin").start()
    lone = node(8, admin_key_file=f"{tmp_path}/admin").start()
    front = node(0, ("4-4", b.port), admin_key_file=f"{tmp_path}/admin").start()
    admin = {"x-api-key": ADMIN}
    made = b.post("/sessions", {}, headers=admin).json()
    own = front.post("/sessions", {}, headers=admin).json()
    for key in (made["api_key"], ADMIN):
        headers = {"x-api-key": key}
        path = f"/sessions/{made['session_id']}/v1/chat/completions"
        assert front.post(path, CHAT, headers=headers).status == 200
        assert lone.post(path, CHAT, headers=headers).status == 421
    assert front.post("/v1/chat/completions", CHAT, headers={"x-api-key": made["api_key"]}).status == 200
    assert lone.post("/v1/chat/completions", CHAT, headers={"x-api-key": made["api_key"]}).status == 421
    # what is ours is still judged here, and the owner judges what is its own
    forged = own["api_key"][:-4] + "0000"
    assert front.post(f"/sessions/{own['session_id']}/v1/chat/completions", CHAT, headers={"x-api-key": forged}).status == 401
    assert front.post("/v1/chat/completions", CHAT, headers={"x-api-key": forged}).status == 401
    assert front.post(f"/sessions/{made['session_id']}/v1/chat/completions", CHAT).status == 401
    assert sessions_of(front, **admin) == [own["session_id"]] and sessions_of(lone, **admin) == []


def test_two_nodes_that_name_each_other_for_one_range_end_a_request_with_508():
    ports = [g.free_port(), g.free_port()]
    a = node(0, ("8-11", ports[1]), listen=f"127.0.0.1:{ports[0]}")
    b = node(4, ("8-11", ports[0]), listen=f"127.0.0.1:{ports[1]}")
    a.port, b.port = ports
    a.start(), b.start()
    for s, other in ((a, b), (b, a)):
        answer = s.get(f"/sessions/{ID % 9}")
        assert answer.status == 508 and code(answer) == "loop_detected" and "--peer" in answer.text
        g.wait_until(lambda s=other: s.has_line("refused a request that another node forwarded.*worker index 9"), what="it is logged")

    def routed(s):
        return sum(int(line.split()[-1]) for line in s.get("/metrics").text.split("\n") if line.startswith("rollgate_routed_total"))
    before = [routed(a), routed(b)]
    assert a.get(f"/sessions/{ID % 9}").status == 508
    assert routed(a) - before[0] <= 3 and routed(b) - before[1] <= 3      # the request, and the scrapes


def test_a_node_that_names_itself_ends_a_request_with_508():
    port = g.free_port()
    s = node(0, ("8-11", port), listen=f"127.0.0.1:{port}")
    s.port = port
    s.start()
    answer = s.get(f"/sessions/{ID % 8}")
    assert answer.status == 421 and "--worker-base" in answer.text       # the sender has this node's indexes: it is this node


def test_two_nodes_with_one_worker_base_that_meet_say_so():
    b = node(0).start()
    a = node(0, ("4-7", b.port)).start()
    session = b.post("/sessions", {}).json()["session_id"]
    answer = a.get(f"/sessions/{ID % 4}")
    assert answer.status == 421 and "each node needs its own --worker-base" in answer.text
    b.wait_line("refused a request that another node forwarded.*worker-base")
    assert sessions_of(b) == [session] and sessions_of(a) == []


@pytest.mark.parametrize("peers,error", [(["1-4=127.0.0.1:9"], "this node's own"), (["4-7=127.0.0.1:9", "7-9=127.0.0.1:9"], "in common"),
                                         (["7-4=127.0.0.1:9"], "FIRST-LAST"), (["4=127.0.0.1:9"], "FIRST-LAST")])
def test_ranges_with_two_owners_are_an_error_at_the_start(peers, error):
    done = subprocess.run([g.BINARY, "config", "--check", "--workers=2", *[f"--peer={p}" for p in peers]],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and error in done.stderr + done.stdout and "--peer" in done.stderr + done.stdout


def test_worker_base_zero_survives_a_dump(tmp_path):
    for flags, given in (([], False), (["--worker-base=0"], True)):
        text = subprocess.run([g.BINARY, "config", "--dump", *flags], check=True, capture_output=True, text=True, timeout=60).stdout
        assert ("worker-base: 0" in text) == given


class TcpWorker(Worker):
    """The same on a TCP port: as another node's router would be."""

    def __init__(self, index=0):
        self.path, self.index = "", index
        self.requests, self.connections, self.broken = [], [], []
        self.handler, self.on_head = self.plain, None
        self.lock = threading.Condition()
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(512)
        self.closed = False
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.listener.getsockname()[1]}"


def test_another_gateway_gets_its_own_address_as_host(tmp_path):
    """Without keys it would refuse the name by which the client knows this node."""
    own, peer = Worker(f"{tmp_path}/w.sock"), TcpWorker()
    router = Router(tmp_path, [f"unix:{own.path}"], "--peer", f"4-7={peer.address}")
    with Client(router) as c:
        for index, *more in ((0,), (4,), (4, "X-Forwarded-Host: front.example, y"), (4, "Rollgate-Forwarded: junk")):
            c.ask("GET", f"/sessions/{ID % index}", None, "Origin: http://localhost", *more)
    (first,) = own.requests
    assert (first.get("host"), first.get("x-forwarded-host"), first.get("rollgate-forwarded")) == (["localhost"], [], [])
    assert [(r.get("host"), r.get("origin"), r.get("rollgate-forwarded")) for r in peer.requests] == \
        [([peer.address], ["http://localhost"], ["0-0"])] * 2
    assert [r.get("x-forwarded-host") for r in peer.requests] == [["localhost"], ["front.example, y"]]
    router.stop()
    own.close(), peer.close()


@pytest.mark.alone
def test_a_call_ends_when_its_node_vanishes(nodes, tmp_path):  # noqa: F811
    """The link goes down while a peer's call is silent, and while a request is on its way on an idle connection."""
    there = nodes[0]
    far = node(4, engine="builtin:echo", insecure=True, listen=f"0.0.0.0:{g.free_port()}")
    port = int(far.settings["listen"].rsplit(":", 1)[1])
    arguments = far.arguments()
    far.arguments = lambda: ["ip", "netns", "exec", there.name, *arguments]
    far.start()
    peer = f"{there.host[:-1]}2"
    front = node(0, workers=1, peer=f"4-7={peer}:{port}").start()
    assert front.get(f"/sessions/{ID % 9}").status == 421

    made = subprocess.run(["ip", "netns", "exec", there.name, "curl", "-sS", "-XPOST", f"http://127.0.0.1:{port}/sessions", "-d", "{}"],
                          check=True, capture_output=True, text=True, timeout=60).stdout
    session = json.loads(made)["session_id"]
    assert front.get(f"/sessions/{session}").status == 200            # leaves an idle connection
    waits = []

    def wait():
        waits.append(front.get(f"/sessions/{session}/wait?timeout_s=3000", timeout=35).status)
    thread = threading.Thread(target=wait)
    thread.start()
    g.wait_until(lambda: "rollgate_connections 2" in front.get("/metrics").text or waits, what="the call is under way")
    ip("-n", there.name, "link", "set", f"{there.link}p", "down")     # this side keeps its route, as with a cut cable
    late = front.get(f"/sessions/{session}", timeout=35)
    assert late.status in (502, 503, 504)
    thread.join(35 * g.PATIENCE)
    assert waits and waits[0] in (502, 503, 504)


@pytest.fixture
def fleet(tmp_path):
    """(site, nodes): the generated nginx site in front of three nodes that know each other."""
    if not (shutil.which("nginx") or os.path.exists("/usr/sbin/nginx")):
        pytest.skip("nginx is not installed")
    ports = [g.free_port() for _ in range(3)]
    made = []
    for i in range(3):
        peers = [(f"{4 * k}-{4 * k + 3}", ports[k]) for k in range(3) if k != i]
        s = node(4 * i, *peers, workers=2, listen=f"127.0.0.1:{ports[i]}")
        s.port = ports[i]
        made.append(s.start())
    site = Nginx(tmp_path, ["--listen", f"127.0.0.1:{ports[0]}", "--workers", "2", "--worker-base", "0",
                            *[f"--peer={p}" for p in made[0].settings["peer"]]])
    yield site, made
    site.close()


def through(site, method, path, body=None):
    c = site.connect()
    c.request(method, path, body=None if body is None else json.dumps(body))
    r = c.getresponse()
    text = r.read()
    c.close()
    return g.Answer(r.status, dict(r.getheaders()), text)


def test_the_site_sends_groups_queues_and_orders_to_one_node(fleet):
    site, (first, *others) = fleet
    peers = first.settings["peer"]
    group = {"runner": "r", "n": 1, "reward": "external"}
    answers = [through(site, "PUT", "/groups/a", group).status for _ in range(9)]
    assert answers == [201] + [200] * 8
    assert [len(s.get("/groups").json()["groups"]) for s in (first, *others)] == [1, 0, 0]
    assert through(site, "GET", "/groups").json()["unreachable"] == peers
    assert through(site, "GET", "/queues/train/next?wait_s=0").status == 200
    assert {through(site, "POST", "/attempts/claim", {}).status for _ in range(6)} == {400}
    assert through(site, "POST", "/queues/train/cancel", {}).json()["unreachable"] == peers
    for path, body in (("/admin/pause", {"mode": "hold"}), ("/admin/resume", {}), ("/admin/weight_version", {"version": "7"}),
                       ("/admin/adapters", {"name": "x", "version": "1"})):
        for _ in range(3):
            answer = through(site, "POST", path, body)
            assert answer.status == 200 and answer.json()["unreachable"] == peers, path
    for _ in range(3):
        assert through(site, "POST", "/admin/pause", {"mode": "hold"}).status == 200
    g.wait_until(lambda: first.get("/health").json()["paused"] == 2, what="the first node holds its calls")
    assert [s.get("/health").json()["paused"] for s in others] == [0, 0]
    for path in ("/admin/engines", "/admin/adapters"):
        assert through(site, "GET", path).json()["unreachable"] == peers
    for method, body in (("POST", {"engines": ["b=builtin:echo"]}), ("DELETE", {"engines": ["b"]})):
        answer = through(site, method, "/admin/engines", body)
        assert answer.status == 200 and answer.json()["unreachable"] == peers, answer.text


def test_lists_and_bulk_orders_name_the_peers_that_they_leave_out(fleet):
    site, nodes_ = fleet
    first = nodes_[0]
    peers = first.settings["peer"]
    for _ in range(12):
        assert through(site, "POST", "/sessions", {"labels": {"run": "1"}}).status in (200, 201)
    counts = [len(s.get("/sessions").json()["sessions"]) for s in nodes_]
    assert sum(counts) == 12 and all(counts)            # any node makes them
    for _ in range(6):
        page = through(site, "GET", "/sessions").json()
        assert len(page["sessions"]) == counts[0] and page["unreachable"] == peers
    seen, cursor = [], ""
    while True:                                         # pages go on where they were
        page = through(site, "GET", f"/sessions?limit=1{cursor}").json()
        seen += [row["session_id"] for row in page["sessions"]]
        if not page["next_cursor"]:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(set(seen)) == len(seen) == counts[0]
    assert first.get("/sessions?local=1").json()["unreachable"] == []
    answer = through(site, "POST", "/sessions/abort", {"labels": {"run": "1"}}).json()
    assert answer == {"status": "ok", "ended": counts[0], "failed": 0, "unreachable": peers}
    for s, n in zip(nodes_[1:], counts[1:]):
        assert s.post("/sessions/finalize", {"labels": {"run": "1"}}).json()["ended"] == n
    alone = through(site, "POST", "/sessions/finalize", {"labels": {"run": "1"}}).json()
    assert alone["ended"] == 0 and alone["unreachable"] == peers


def test_every_answer_about_one_node_names_the_peers_that_it_leaves_out(start, tmp_path):
    """Lists, counts, orders and streams; also for a page of figures, which needs no key and shows no address."""
    peers = [("4-7", 9), ("8-11", 11)]
    s, lone = node(0, *peers).start(), start(engine="builtin:echo", workers=1)
    named = [f"{indexes}=127.0.0.1:{port}" for indexes, port in peers]
    group = {"runner": "r", "n": 1, "reward": "external"}
    for gateway, want in ((s, named), (lone, None)):
        assert gateway.request("PUT", "/groups/g", group).status == 201
        for method, path, body in (
                ("GET", "/groups", None), ("GET", "/attempts", None), ("GET", "/queues/train", None), ("GET", "/queues/typo", None),
                ("GET", "/queues/train/next?wait_s=0", None), ("POST", "/queues/train/ack", {"groups": ["g"]}),
                ("POST", "/queues/train/return", {"groups": ["g"]}), ("POST", "/queues/train/cancel", {"labels": {"a": "b"}}),
                ("GET", "/admin/engines", None), ("GET", "/admin/adapters", None), ("POST", "/admin/pause", {"mode": "hold"}),
                ("POST", "/admin/resume", {}), ("POST", "/sessions/abort", {"labels": {"a": "b"}})):
            answer = gateway.request(method, path, body)
            assert answer.status == 200 and answer.json().get("unreachable") == want, (path, answer.text)
        for method, path in (("GET", "/groups/x"), ("GET", "/groups/x/wait"), ("POST", "/groups/x/cancel")):
            answer = gateway.request(method, path, {} if method == "POST" else None)
            assert answer.status == 404 and all((name in answer.text) == (gateway is s) for name in named), answer.text
        c = gateway.connect()
        c.request("GET", "/events")
        stream = c.getresponse()
        assert stream.readline() == b"event: hello\n"
        assert json.loads(stream.readline().removeprefix(b"data: ")).get("unreachable") == want
        c.close()
        assert gateway.get("/health").json().get("unreachable") == (want and ["4-7", "8-11"])
        page = gateway.get("/metrics").text
        assert page.startswith("# unreachable: 4-7, 8-11\n") == (gateway is s) and "127.0.0.1:9" not in page
        top = subprocess.run([g.BINARY, "top", "--gateway", gateway.url, "--once"], check=True, capture_output=True, text=True, timeout=60)
        assert ("this node only, without its peers' workers 4-7, 8-11" in top.stdout) == (gateway is s)
        listed = subprocess.run([g.BINARY, "group", "--gateway", gateway.url, "list"], check=True, capture_output=True, text=True, timeout=60)
        assert listed.stderr.count("are not listed") == (2 if want else 0), listed.stderr


def test_the_dispatcher_of_a_node_with_peers_ends_its_walk_over_the_sessions():
    """Peers in the list are no workers that were away: it does not ask again and again."""
    s = node(0, ("4-7", 9)).start()

    def asked():
        return sum(int(line.split()[-1]) for line in s.get("/metrics").text.split("\n")
                   if line.startswith("rollgate_requests_total") and 'dialect="control"' in line)
    g.wait_until(lambda: asked() > 0, what="it has asked for the sessions")
    before = asked()
    g.stays(lambda: asked() == before, 5, "a walk that was not whole is repeated after two seconds")


def test_python_says_that_a_list_is_one_nodes(start):
    import sys
    sys.path.insert(0, str(g.ROOT / "python"))
    from rollgate import Client as PythonClient
    from rollgate.errors import Unreachable
    s = node(0, ("4-7", 9)).start()
    s.post("/sessions", {})
    with PythonClient(s.url) as client:
        assert client.list_sessions()["unreachable"] == ["4-7=127.0.0.1:9"]
        with pytest.raises(Unreachable, match="4-7=127.0.0.1:9") as e:
            list(client.all_sessions())
        assert not e.value.retry
