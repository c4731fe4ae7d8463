"""Agents that call a gateway with the echo engine and record every answer. At the end each answered turn must be in
the exports exactly once, with the ids that the engine sent (the text's bytes and <|im_end|>, 257). For the tests of
scaling, upgrades and crashes."""
import http.client
import json
import random
import threading
import time


class Agent(threading.Thread):
    """Makes one session after another, with some turns each. Retries like SDKs. Any other error counts as a failure."""

    def __init__(self, world, number):
        super().__init__(daemon=True)
        self.world, self.number, self.random = world, number, random.Random(number)

    def run(self):
        while not self.world.stopping:
            session = self.world.create()
            if session is None:
                continue
            self.world.sessions[session] = []
            messages = [{"role": "system", "content": f"agent {self.number}"}]
            for turn in range(self.random.randint(2, self.world.turns)):
                text = f"turn {turn} of agent {self.number}: {self.random.getrandbits(64):x} \u00e9"
                messages.append({"role": "user", "content": text})
                answer = self.world.call(session, messages)
                if answer is None:
                    return
                if answer != text:
                    self.world.failures.append(f"{session}: answer {answer!r} to {text!r}")
                self.world.sessions[session].append(text)
                messages.append({"role": "assistant", "content": answer})
                if self.world.stopping:
                    break


class World:
    def __init__(self, port, agents=4, turns=6, patience=60.0, strict=False, keep_alive=False):
        """strict: no answer may be an error, even one that asks for a retry. keep_alive: an agent uses its connection
        until an answer ends it."""
        self.port, self.turns, self.patience, self.strict = port, turns, patience, strict
        self.sessions, self.failures, self.retries, self.stopping = {}, [], 0, False
        self.keep_alive, self.kept = keep_alive, threading.local()
        self.agents = [Agent(self, i) for i in range(agents)]

    def start(self):
        for a in self.agents:
            a.start()
        return self

    def stop(self):
        self.stopping = True
        for a in self.agents:
            a.join(self.patience + 30)
            assert not a.is_alive(), "an agent hangs"

    def answered(self):
        return sum(len(t) for t in self.sessions.values())

    def once(self, method, path, body):
        c = getattr(self.kept, "connection", None) or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self.kept.connection = None
        try:
            c.request(method, path, None if body is None else json.dumps(body),
                      {"Content-Type": "application/json"})
            r = c.getresponse()
            text = r.read()
            if self.keep_alive and not self.stopping:
                self.kept.connection = c    # http.client opens a new connection if this one has ended
            return r.status, r.headers, text
        finally:
            if self.kept.connection is not c:
                c.close()

    def request(self, method, path, body=None):
        """Sends a request until it is answered. Returns (headers, body), or None after a timeout, or if a retry is
        useless."""
        end = time.monotonic() + self.patience
        while True:
            try:
                status, headers, text = self.once(method, path, body)
                if status == 200:
                    return headers, text
                why = f"{method} {path}: {status} {text[:200]}"
                retry = headers.get("x-should-retry") == "true" or status in (502, 503)
            except (OSError, http.client.HTTPException) as e:
                why, retry = f"{method} {path}: {e!r}", True
            self.retries += 1
            if self.strict or not retry or time.monotonic() > end:
                self.failures.append(why)
                return None
            time.sleep(0.05)

    def create(self):
        got = self.request("POST", "/sessions", {})
        return json.loads(got[1])["session_id"] if got else None

    def call(self, session, messages):
        got = self.request("POST", f"/sessions/{session}/v1/chat/completions",
                           {"model": "m", "messages": messages})
        if got is None:
            return None
        if got[0].get("Rollgate-Reseeded"):
            self.failures.append(f"{session}: the session was lost and made anew")
        return json.loads(got[1])["choices"][0]["message"]["content"]

    def check_export(self, session, turns):
        got = self.request("POST", f"/sessions/{session}/finalize", {})
        if got is None:
            return
        found = []
        for t in json.loads(got[1])["trajectories"]:
            for turn in t["turns"]:
                ids = t["response_ids"][turn["start"]:turn["end"]]
                mask = t["response_mask"][turn["start"]:turn["end"]]
                if set(mask) != {1} or ids[-1:] != [257]:
                    self.failures.append(f"{session}: a turn's ids or mask are wrong")
                found.append(bytes(i for i in ids[:-1]).decode())
        for text in turns:
            if found.count(text) != 1:
                self.failures.append(f"{session}: {text!r} stands {found.count(text)} times in the export")

    def check_exports(self):
        for session, turns in self.sessions.items():
            self.check_export(session, turns)
        return self
