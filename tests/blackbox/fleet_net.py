"""A fleet whose nodes, store and front have a network namespace each, cables that the test cuts, agents that talk to it, and the
comparison of what they received with what is recorded."""
import contextlib
import http.client
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest
import redis

import gateway as g
from fleet_kit import AS_ADMIN, Fleet
from store_kit import Proxy, Server

NETWORKS = range(20, 120)
ROUNDS = int(os.environ.get("RG_FLEET_ROUNDS", "1"))
FIGURES = os.environ.get("RG_FLEET_FIGURES")
LEASE_S = 1.0


def report(name, counts, gaps=(), of="pause of an agent", rounds=ROUNDS):
    """Writes a line of figures, if a file is named."""
    gaps, line = sorted(gaps), f"{name}: {rounds} rounds, {counts}"
    if gaps:
        line += (f", longest {of} p50 {gaps[len(gaps) // 2]:.2f} s, p99 {gaps[len(gaps) * 99 // 100]:.2f} s, max {gaps[-1]:.2f} s, "
                 f"lease {LEASE_S:g} s")
    print(line)
    if FIGURES:
        with open(FIGURES, "a", encoding="utf-8") as f:
            f.write(line + "\n")


def leases(n):
    g.pause(n * LEASE_S, "the fault lasts so many leases")


def wait_claimed(fleet, node):
    """Waits until no place is owned by the node."""
    g.wait_until(lambda: all(fleet.owner(i) != node for i in fleet.indexes()), 30, f"places of {node} are claimed")


def back_up(fleet, node, names_node=True):
    """Waits until the node makes sessions again, and the front uses it. An older build does not know the member `node`."""
    made = {"node": node} if names_node else {}
    g.wait_until(lambda: fleet[node].post("/sessions", made, headers=AS_ADMIN).status == 200, 30, f"{node} serves")
    if fleet.front_kind == "haproxy":
        g.wait_until(lambda: fleet.front.sees(node), 30, f"the front sends to {node}")


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True, timeout=20)


class Member:
    """A namespace with one cable to the switch, at 10.N.NUMBER.1."""

    def __init__(self, switch, number):
        self.name = f"{switch.name}-{number}"
        self.cable, self.address = f"m{number}", f"10.{switch.n}.{number}.1"
        ip("netns", "add", self.name)
        ip("-n", switch.name, "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        gate = f"10.{switch.n}.{number}.2"
        for words in (("-n", switch.name, "addr", "add", f"{gate}/24", "dev", self.cable), ("-n", switch.name, "link", "set", self.cable, "up"),
                      ("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0"), ("-n", self.name, "link", "set", "lo", "up"),
                      ("-n", self.name, "link", "set", "eth0", "up"), ("-n", self.name, "route", "add", "default", "via", gate)):
            ip(*words)

    def run(self, *command):
        """Returns the command, as it is run inside."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]


class Switch:
    """Connects members and this process, which has the address 10.N.0.1."""

    def __init__(self):
        for self.n in NETWORKS:
            self.lock = socket.socket(socket.AF_UNIX)
            try:
                self.lock.bind(f"\0rollgate-test-network-{self.n}")     # of the whole machine, as its networks are
                break
            except OSError:
                self.lock.close()
        else:
            raise RuntimeError("other tests use all networks")
        self.name, self.address = f"rgf{self.n}", f"10.{self.n}.0.1"     # the name is its link's, too
        self.members, self.cuts = {}, []

    def __enter__(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            pytest.skip("network namespaces need root and ip (apt-get install iproute2)")
        self.remove()       # those of a test that was killed
        made = ip("netns", "add", self.name, check=False)
        if made.returncode:
            self.lock.close()
            pytest.skip(f"no network namespaces here: {made.stderr}")
        try:
            subprocess.run(["ip", "netns", "exec", self.name, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"], check=True, timeout=20)
            ip("link", "add", self.name, "type", "veth", "peer", "name", "uplink", "netns", self.name)
            for words in (("addr", "add", f"{self.address}/24", "dev", self.name), ("link", "set", self.name, "up"),
                          ("-n", self.name, "addr", "add", f"10.{self.n}.0.2/24", "dev", "uplink"),
                          ("-n", self.name, "link", "set", "uplink", "up"),
                          ("route", "add", f"10.{self.n}.0.0/16", "via", f"10.{self.n}.0.2")):
                ip(*words)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.remove()
        self.lock.close()

    def remove(self):
        ip("link", "del", self.name, check=False)
        listed = [line.split()[0] for line in ip("netns", "list", check=False).stdout.splitlines()]
        for name in listed:
            if name == self.name or name.startswith(f"{self.name}-"):
                ip("netns", "del", name, check=False)

    def add(self, name):
        self.members[name] = Member(self, len(self.members) + 1)
        return self.members[name]

    def address_of(self, name):
        return self.address if name == "test" else self.members[name].address

    def drop(self, source, target):
        """Drops all packets of this direction, without a word. "test" is this process."""
        words = ("from", self.address_of(source), "to", self.address_of(target), "blackhole", "pref", str(100 + len(self.cuts)))
        ip("-n", self.name, "rule", "add", *words)
        self.cuts.append(words)

    def cut(self, a, b):
        """Drops all packets between them."""
        self.drop(a, b)
        self.drop(b, a)

    def heal(self):
        for words in self.cuts:
            ip("-n", self.name, "rule", "del", *words)
        self.cuts = []


class FarServer(Server):
    """A store in a namespace."""

    def __init__(self, member, folder, *options, **more):
        super().__init__(folder, "--protected-mode", "no", *options, **more)
        self.host, self.within = member.address, member.run()


class FarGateway(g.Gateway):
    """A node in a namespace."""

    def __init__(self, member, **settings):
        super().__init__(**settings)
        self.member = member
        self.settings["listen"] = f"0.0.0.0:{self.port}"
        self.settings["fleet-address"] = self.address = f"{member.address}:{self.port}"

    def arguments(self):
        return self.member.run(*super().arguments())

    @property
    def url(self):
        return f"http://{self.address}"

    def connect(self, timeout=30):
        return http.client.HTTPConnection(self.member.address, self.port, timeout=g.PATIENCE * timeout)


class Front:
    """nginx or HAProxy over all nodes, without a map of indexes."""

    def __init__(self, kind, member, folder, nodes):
        self.kind, self.address, self.port, self.tls = kind, member.address, 8600, None
        program = shutil.which(kind) or f"/usr/sbin/{kind}"
        if not os.path.exists(program):
            pytest.skip(f"{kind} is not installed")
        folder.mkdir()
        self.log = open(folder / "log", "wb")
        command = getattr(self, f"write_{kind}")(folder, nodes)
        self.process = subprocess.Popen(member.run(program, *command), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        g.wait_until(self.answers, 20, f"{kind} answers")

    def write_haproxy(self, folder, nodes):
        servers, self.stats = "".join(f"  server {name} {node.address}\n" for name, node in nodes.items()), folder / "stats"
        (folder / "haproxy.cfg").write_text(f"""
global
  maxconn 4000
  stats socket {self.stats}
defaults
  mode http
  timeout connect 1s
  timeout check 5s
  timeout client 300s
  timeout server 300s
  retries 2
  option redispatch 1
  default-server check inter 200ms fall 2 rise 1
frontend f
  bind {self.address}:{self.port}
  default_backend nodes
backend nodes
  balance roundrobin
  option httpchk GET /ready
{servers}""")
        return ["-db", "-f", folder / "haproxy.cfg"]

    def sees(self, node):
        """True if HAProxy's checks have found the node to be ready."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.stats))
            s.sendall(b"show stat\n")
            with s.makefile() as rows:
                return any(row.startswith(f"nodes,{node},") and ",UP," in row for row in rows)

    def write_nginx(self, folder, nodes):
        """With TLS, by the site that the gateway writes for a fleet."""
        subprocess.run([g.ROOT / "deploy/nginx/make-certificate", folder, "gw.test"], check=True, capture_output=True)
        self.tls = ssl.create_default_context(cafile=folder / "tls.crt")
        self.tls.check_hostname = False
        site = subprocess.run([g.BINARY, "nginx-config", "--fleet=redis://store?name=x", f"--site-nodes={','.join(n.address for n in nodes.values())}",
                               f"--site-listen={self.address}:{self.port}", "--server-name=gw.test", f"--certificate={folder}/tls.crt",
                               f"--certificate-key={folder}/tls.key"], check=True, capture_output=True, text=True, timeout=60).stdout
        temps = "".join(f"  {k}_temp_path {folder}/{k};\n" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(f"daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error.log warn;\n"
                                           f"events {{ worker_connections 1000; }}\nhttp {{\n  access_log off;\n{temps}{site}}}\n")
        return ["-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]

    def connect(self, timeout):
        if self.tls:
            return http.client.HTTPSConnection(self.address, self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(self.address, self.port, timeout=timeout)

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            c = self.connect(5)
            c.request("GET", "/health")
            status = c.getresponse().status
            c.close()
            return status == 200
        return False

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


class FarFleet(Fleet):
    """with FarFleet(tmp_path, nodes="abc") as fleet: like Fleet, with namespaces. fleet.switch cuts and heals; members are the nodes'
    names, "store" and "front"."""

    def __init__(self, folder, nodes="abc", front=None, store=(), between=False, password_file=None, **settings):
        """between: nodes reach the store through self.proxy, which the test can delay and turn to a different server."""
        self.switch = Switch().__enter__()
        self.front, self.front_kind, self.proxy, self.password_file = None, front, None, password_file
        try:
            server = FarServer(self.switch.add("store"), folder / "store", *store,
                               password=password_file and password_file.read_text().strip())
            if between:
                self.proxy = Proxy(server.port, host=self.switch.address, target_host=server.host)
            super().__init__(folder, nodes, server=server, **{"engine": "builtin:random:1", "fleet-hold": "30s", **settings})
        except BaseException:
            self.switch.__exit__()
            raise

    @property
    def url(self):
        if self.password_file:
            return self.server.url(self.name, password_file=self.password_file)
        return self.proxy.url(self.name) if self.proxy else super().url

    def add(self, node, **settings):
        member = self.switch.members.get(node) or self.switch.add(node)
        self.nodes[node] = FarGateway(member, **{"fleet": self.url, "fleet_node": node, "fleet_lease": self.lease, **self.keys,
                                                 **self.settings, **settings})
        self.nodes[node].allow("store", "another node", "not claimed", "place without an owner", "watching its beat", "epoch",
                               "process (died|ended)", "cannot be read back", "is lost")
        return self.nodes[node]

    def __enter__(self):
        try:
            super().__enter__()
            if self.front_kind:
                self.front = Front(self.front_kind, self.switch.add("front"), self.folder / "front", self.nodes)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        self.switch.heal()
        if self.front:
            self.front.close()
        super().__exit__(*exc)
        if self.proxy:
            self.proxy.__exit__()
        self.switch.__exit__()

    # --- failovers of the store, with `between` ---

    def add_replica(self, name):
        """Returns a server in a namespace of its own that has all that the store has."""
        replica = FarServer(self.switch.add(name), self.folder / name).start()
        replica.follow(self.server)
        at = self.server.ask("INFO", "replication")["master_repl_offset"]
        g.wait_until(lambda: replica.ask("INFO", "replication")["slave_repl_offset"] >= at, 20, "the replica has all")
        replica.name = name
        return replica

    def cut_replica(self, replica):
        """From now on the replica misses what the store gets."""
        self.switch.cut(next(n for n, m in self.switch.members.items() if m.address == self.server.host), replica.name)

    def promote(self, replica):
        """Kills the store. The replica, which lacks records, takes its place."""
        old = self.server.ask("INFO", "replication")["master_repl_offset"]
        assert replica.ask("INFO", "replication")["slave_repl_offset"] < old, "it lacks nothing"
        self.server.stop()
        replica.ask("REPLICAOF", "NO", "ONE")
        self.proxy.target, self.proxy.target_host = replica.port, replica.host
        self.server = replica
        self.proxy.cut()

    def doors(self):
        """Returns where agents call: the front, or each node."""
        return [self.front] if self.front else list(self.nodes.values())

    def indexes(self):
        """Returns the indexes that the store has an entry of, without the dispatcher's."""
        keys = self.server.ask("KEYS", f"rg:{self.name}:place:*")
        return sorted(int(name) for name in (key.split("{")[1].rstrip("}") for key in keys) if name.isdigit())

    def unsettled(self):
        """Returns the indexes that no living node owns, or whose records the store has not all."""
        try:
            entries = {i: self.entry(f"place:{{{i}}}") for i in self.indexes()}
        except redis.exceptions.RedisError:
            return ["the store"]
        alive = {name for name, node in self.nodes.items() if node.process and node.process.poll() is None}
        used = {i: e for i, e in entries.items() if e.get("owner") or e.get("vacant") != e.get("epoch")}
        return [i for i, e in used.items() if e.get("whole") != "1" or e.get("owner") not in alive]

    def wait_settled(self, seconds=60):
        g.wait_until(lambda: not self.unsettled(), seconds, "every place has a living owner, and its records are in the store")


class Agent(threading.Thread):
    """Talks in one session. Repeats a call until it is answered, as SDKs do; every third call is streamed. `answers` has what it
    received completely: (response id, text)."""

    def __init__(self, fleet, number, pace):
        super().__init__()
        self.fleet, self.pace, self.random = fleet, pace, random.Random(number)
        self.answers, self.gap, self.refusals, self.fault = [], 0.0, {}, None
        self.began = {}         # response id -> when the call was first sent
        self.ended = threading.Event()
        self.session = self.insist("POST", "/sessions", {}, AS_ADMIN)
        self.path = f"/sessions/{self.session['session_id']}/v1/chat/completions"
        self.messages = []

    def ask(self, method, path, body, headers):
        c = self.random.choice(self.fleet.doors()).connect(30)
        try:
            c.request(method, path, json.dumps(body), {"Content-Type": "application/json", **headers})
            answer = c.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            c.close()

    def insist(self, method, path, body, headers):
        end = time.monotonic() + 60 * g.PATIENCE
        while time.monotonic() < end:
            try:
                status, text, told = self.ask(method, path, body, headers)
            except (OSError, http.client.HTTPException) as e:
                status, text, told = type(e).__name__, b"", {}
            if status == 200:
                whole = self.read_answer(text) if body.get("stream") else json.loads(text)
                if whole:
                    return whole
                status = "cut"
            elif isinstance(status, int) and (status not in (502, 503, 504) or told.get("x-should-retry") == "false"):
                raise AssertionError(f"{path}: {status} {text[:500]}")
            self.refusals[status] = self.refusals.get(status, 0) + 1
            time.sleep(0.05)
        raise AssertionError(f"{path}: no answer; {self.refusals}")

    @staticmethod
    def read_answer(text):
        """Returns the answer of a stream; None: it was cut."""
        events = [line[6:] for line in text.decode().split("\n") if line.startswith("data: ")]
        if not events or events[-1].strip() != "[DONE]":
            return None
        chunks = [json.loads(event) for event in events[:-1]]
        content = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", []))
        return {"id": chunks[0]["id"], "choices": [{"message": {"role": "assistant", "content": content}}]}

    def run(self):
        last = time.monotonic()
        try:
            while not self.ended.is_set():
                turn, began = len(self.answers), time.monotonic()
                self.messages.append({"role": "user", "content": f"turn {turn}"})
                body = {"model": "m", "messages": self.messages, "max_tokens": 12, "stream": turn % 3 == 2}
                answer = self.insist("POST", self.path, body, {"x-api-key": self.session["api_key"]})
                message = answer["choices"][0]["message"]
                self.messages.append({"role": "assistant", "content": message["content"]})
                self.answers.append((answer["id"], message["content"]))
                self.began[answer["id"]] = began
                now = time.monotonic()
                self.gap, last = max(self.gap, now - last), now
                self.ended.wait(self.pace)
                last += self.pace
        except (AssertionError, ValueError, KeyError) as e:
            self.fault = e


class Agents:
    """with Agents(fleet, 12) as agents: they talk until the end of the block; then each answer must be recorded once."""

    def __init__(self, fleet, count, pace=0.05):
        self.fleet, self.all = fleet, [Agent(fleet, n, pace) for n in range(count)]

    def __enter__(self):
        for agent in self.all:
            agent.start()
        self.wait_turns(2)
        return self

    def wait_turns(self, more):
        """Waits until each has received so many more answers."""
        wanted = {agent: len(agent.answers) + more for agent in self.all}
        g.wait_until(lambda: any(a.fault for a in self.all) or all(len(a.answers) >= n for a, n in wanted.items()), 60, "all agents are answered")

    def __exit__(self, kind, *_):
        if kind:
            self.fleet.switch.heal()        # else they would wait
        for agent in self.all:
            agent.ended.set()
        for agent in self.all:
            agent.join(60 * g.PATIENCE)
        if kind is None:
            faults = [f"{a.session['session_id']}: {a.fault}" for a in self.all if a.fault]
            assert not faults, "\n".join(faults)

    @property
    def gaps(self):
        return sorted(agent.gap for agent in self.all)

    @property
    def n_answers(self):
        return sum(len(agent.answers) for agent in self.all)

    def check(self):
        """Each answer that an agent has received is in its session's records once, in this order, with the same text, and the session
        does not say that answers may be missing."""
        for agent in self.all:
            state = agent.insist("GET", f"/sessions/{agent.session['session_id']}?records=1", {}, AS_ADMIN)
            assert not state["warnings"], (agent.session["session_id"], state["warnings"])
            kept = [(r["answers"][0]["response_id"], bytes(i for i in r["answers"][0]["output_ids"] if i < 256).decode())
                    for r in state["records"]]
            ids = [response for response, _ in kept]
            assert len(set(ids)) == len(ids), agent.session
            missing = [answer for answer in agent.answers if answer not in kept]
            assert not missing, (agent.session["session_id"], missing, kept)
            assert [answer for answer in kept if answer in agent.answers] == agent.answers
