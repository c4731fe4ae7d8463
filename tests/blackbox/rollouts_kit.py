"""An executor for the tests of the dispatcher: claims attempts, runs a function for each in a thread, renews its
leases and ends them. Also the trainer's use of queues."""
import threading
import time

import gateway as g


class Executor:
    """runners: name -> function(gateway, attempt), which returns the body of the attempt's end."""

    def __init__(self, gateway, name, slots, runners, key=None):
        self.gateway, self.name, self.slots, self.runners = gateway, name, slots, runners
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.lock = threading.Lock()
        self.running, self.peak, self.done, self.failures = {}, {}, [], []
        self.stopping = threading.Event()
        self.threads = []

    def __enter__(self):
        for work in (self.claim_loop, self.renew_loop):
            t = threading.Thread(target=work, daemon=True)
            t.start()
            self.threads.append(t)
        return self

    def __exit__(self, *args):
        self.stopping.set()
        for t in self.threads:
            t.join(40)
        assert not any(t.is_alive() for t in self.threads), "an executor's thread hangs"
        if not args[0]:
            assert not self.failures, self.failures[0]

    def post(self, path, body):
        return self.gateway.post(path, body, headers=self.headers, timeout=60)

    def free(self):
        with self.lock:
            busy = {}
            for attempt in self.running.values():
                busy[attempt["runner"]] = busy.get(attempt["runner"], 0) + 1
            return {r: n - busy.get(r, 0) for r, n in self.slots.items() if n > busy.get(r, 0)}

    def claim_loop(self):
        while not self.stopping.is_set():
            slots = self.free()
            if not slots:
                self.stopping.wait(0.005)
                continue
            try:
                answer = self.post("/attempts/claim", {"executor": self.name, "slots": slots, "wait_s": 0.5})
            except OSError:
                self.stopping.wait(0.05)
                continue
            if answer.status != 200:
                if answer.status < 500:
                    self.failures.append(answer.text)
                self.stopping.wait(0.05)
                continue
            for attempt in answer.json()["attempts"]:
                with self.lock:
                    self.running[attempt["attempt_id"]] = attempt
                    n = sum(a["runner"] == attempt["runner"] for a in self.running.values())
                    self.peak[attempt["runner"]] = max(n, self.peak.get(attempt["runner"], 0))
                t = threading.Thread(target=self.run, args=(attempt,), daemon=True)
                self.threads.append(t)
                t.start()

    def run(self, attempt):
        try:
            try:
                end = self.runners[attempt["runner"]](self.gateway, attempt)
            except OSError as e:    # the gateway's process died during the call
                end = {"outcome": "infra", "reason": str(e)}
            self.end(attempt, end)
        except Exception as e:
            self.failures.append(f"{type(e).__name__}: {e}")
        finally:
            with self.lock:
                self.running.pop(attempt["attempt_id"], None)

    def end(self, attempt, body):
        deadline = time.monotonic() + 60
        while True:
            try:
                answer = self.post(f"/attempts/{attempt['attempt_id']}/end", dict(body, executor=self.name))
            except OSError as e:
                answer = g.Answer(503, {}, str(e).encode())
            if answer.status < 500:
                break
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.05)
        if answer.status != 410:
            assert answer.status == 200, answer.text
            with self.lock:
                self.done.append((attempt, answer.json()["rollout"]))

    def renew_loop(self):
        while not self.stopping.is_set():
            with self.lock:
                ids = list(self.running)
            try:
                self.post("/attempts/renew", {"executor": self.name, "attempts": ids})
            except OSError:
                pass
            self.stopping.wait(0.2)


def chat(gateway, attempt, text, **more):
    """Makes one model call of the attempt's agent. Returns the answer."""
    session = attempt["session"]
    return gateway.post(f"/sessions/{session['session_id']}/v1/chat/completions",
                        {"messages": [{"role": "user", "content": text}], **more},
                        headers={"Authorization": f"Bearer {session['api_key']}"})


def solve(reward=1.0, turns=1):
    """Returns a runner that makes `turns` calls and gets `reward`."""
    def run(gateway, attempt):
        for turn in range(turns):
            answer = chat(gateway, attempt, f"task {attempt['input']} rollout {attempt['rollout']} turn {turn}")
            if answer.status != 200:
                return {"outcome": "infra", "reason": answer.text[:200]}
        return {"outcome": "ok", "reward_info": {"reward": reward}}
    return run


def take_all(gateway, queue, n, timeout=60, **query):
    """Takes the next n groups of a queue and acknowledges them."""
    groups, end = [], time.monotonic() + timeout
    more = "".join(f"&{k}={v}" for k, v in query.items())
    while len(groups) < n:
        assert time.monotonic() < end, f"{len(groups)} of {n} groups came: {gateway.get(f'/queues/{queue}').text}"
        answer = gateway.get(f"/queues/{queue}/next?max={min(16, n - len(groups))}&wait_s=2{more}", timeout=30)
        assert answer.status == 200, answer.text
        got = answer.json()["groups"]
        groups += got
        if got:
            answer = gateway.post(f"/queues/{queue}/ack", {"groups": [x["id"] for x in got]})
            assert answer.status == 200 and answer.json()["acked"] == len(got), answer.text
    return groups
