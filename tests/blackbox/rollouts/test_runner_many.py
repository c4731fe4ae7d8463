"""`rollgate runner` with more attempts than one request may name, at a simulated gateway that counts."""
import collections
import http.server
import json
import threading

import gateway as g
from runner_kit import Runner

IDS_MAX = 10000     # of a renewal, as the dispatcher has it


class Counting:
    """Gives each runner so many attempts, counts what is renewed, and cancels all of them once `over` is set."""

    def __init__(self, folder, each):
        self.folder, self.each = str(folder), each
        self.given, self.renewed, self.longest = {}, collections.Counter(), 0
        self.refusals = []      # what the first ends are answered
        self.lock, self.over = threading.Lock(), threading.Event()
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = gateway.answer(self.path, body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass    # the executor withdraws renewals and claims
        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path, body):
        if path == "/attempts/claim":
            return self.claim(*body["slots"], body["wait_s"])
        if path == "/attempts/renew":
            return self.renew(body["attempts"], body["wait_s"])
        if path.endswith("/end") and self.refusals:
            return self.refusals.pop(0), {"error": {"message": "not now"}}
        return 200, {"rollout": "succeeded"} if path.endswith("/end") else 1

    def claim(self, runner, wait_s):
        with self.lock:
            fresh = runner not in self.given
            if fresh:
                self.given[runner] = [f"{len(self.given)}{i:031x}" for i in range(self.each)]
        if not fresh:
            self.over.wait(wait_s)
        return 200, {"attempts": [{"attempt_id": i, "group": "g", "rollout": 0, "attempt": 1, "runner": runner, "run_timeout_s": 600,
                                   "session": {"session_id": f"s-{i}"}} for i in self.given[runner]] if fresh else []}

    def renew(self, ids, wait_s):
        with self.lock:
            self.longest = max(self.longest, len(ids))
            if len(ids) > IDS_MAX:
                return 400, {"error": {"message": f"attempts must be a list of at most {IDS_MAX} ids"}}
            self.renewed.update(ids)
        if not self.over.is_set():
            self.over.wait(wait_s)
        return 200, {"kill": [{"attempt_id": i, "reason": "cancelled"} for i in ids] if self.over.is_set() else []}


def test_more_attempts_than_a_renewal_may_name_are_renewed_in_several(tmp_path):
    with Counting(tmp_path, 6000) as gateway:
        slow = {"http": f"{gateway.url}/run", "slots": 6000, "start_rate": "1/m"}     # nearly all of them wait for their start
        with Runner(gateway, {"a": slow, "b": slow}) as runner:
            g.wait_until(lambda: len(gateway.given) == 2, 30, "both runners have their attempts")
            waiting = {i for ids in gateway.given.values() for i in ids[1:]}
            g.wait_until(lambda: all(gateway.renewed[i] > 2 for i in waiting) or runner.process.poll() is not None, 60,
                         "each lease is renewed, again and again")
            assert runner.process.poll() is None, runner.log()[:2000]
            assert gateway.longest <= IDS_MAX
            gateway.over.set()
            g.wait_until(lambda: runner.log().count("attempt ended") == 12000, 60, "all of them end")


def test_an_end_whose_bytes_came_too_late_is_told_again(tmp_path):
    """408, as of a machine that stood still: it is no refusal of the end."""
    with Counting(tmp_path, 1) as gateway:
        gateway.refusals = [408, 503, 429]
        with Runner(gateway, {"a": {"http": f"{gateway.url}/run", "slots": 1}}) as runner:
            g.wait_until(lambda: "attempt ended" in runner.log(), 30, "the attempt ends")
            assert gateway.refusals == [] and "refuses an attempt's end" not in runner.log(), runner.log()[:2000]
