"""An engine whose answers a test writes: it speaks SGLang's /generate, from a thread of this process.

    with ScriptedEngine(["first answer", Answer(ids=[104, 105, 257], logprobs=[-0.1, -0.2, -0.3])]) as engine:
        ...                                 # a gateway with --engine engine.setting
        engine.requests[0].prompt_ids
"""
from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterable, Optional, Sequence, Union


@dataclass
class Answer:
    """One answer. text: encoded by the model's tokenizer, and followed by its end token unless finish is length. ids:
    the tokens themselves, including the end token. logprobs: one for each token; default: a formula of token and
    position. version: of the weights. status: an HTTP error instead, with text as its message. Raises ValueError if
    finish is not stop, length or abort."""

    text: str = ""
    ids: Optional[Sequence[int]] = None
    logprobs: Optional[Sequence[float]] = None
    finish: str = "stop"
    version: Union[int, str, None] = None
    status: int = 200

    def __post_init__(self) -> None:
        if self.finish not in ("stop", "length", "abort"):
            raise ValueError(f"finish must be stop, length or abort, not {self.finish!r}")


@dataclass
class Request:
    """A request of the gateway. call: its number, from 0; body: the whole request."""

    call: int
    prompt_ids: list[int]
    sampling_params: dict[str, Any]
    body: dict[str, Any]


Answers = Union[Iterable[Union[str, Answer]], Callable[[Request], Union[str, Answer]]]


def logprob_of(place: int, token: int) -> float:
    """Returns the logprob for an answer without logprobs: the built-in engine's formula."""
    return -((token * 7 + place * 13) % 100) / 100


class ScriptedEngine:
    """A context manager. answers: a list, which is used up in order, or a function of the Request. A call beyond the
    list gets an error that names the call. `answers` may be replaced at any time: the next call gets the first new
    one. `requests` has the requests."""

    def __init__(self, answers: Answers = (), *, version: Union[int, str, None] = None, binary: Optional[str] = None,
                 model: Optional[str] = None):
        self.version, self.binary, self.model = version, binary, model
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self.answers = answers
        self._connections: set[Any] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def answers(self) -> Answers:
        """The list, or the function."""
        return self._answers

    @answers.setter
    def answers(self, answers: Answers) -> None:
        """Sets the answers. The next call gets the first one."""
        with self._lock:
            self._answers: Answers = answers if callable(answers) else list(answers)
            self._before = len(self.requests)       # calls that had earlier answers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def setting(self) -> str:
        """The value of --engine."""
        return f"sglang:{self.url}"

    def __enter__(self) -> "ScriptedEngine":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        with self._lock:
            open_ones = list(self._connections)
        for handler in open_ones:
            handler.hang_up()

    # --- answers ---

    def _choose(self, body: dict[str, Any]) -> Answer:
        with self._lock:
            request = Request(len(self.requests), list(body["input_ids"]), dict(body.get("sampling_params") or {}), body)
            self.requests.append(request)
            answers, place = self._answers, request.call - self._before
        if callable(answers):
            chosen = answers(request)
        else:
            script = list(answers)
            if place >= len(script):
                return Answer(f"the script has {len(script)} answers, and this is call {place + 1}", status=400)
            chosen = script[place]
        return chosen if isinstance(chosen, Answer) else Answer(chosen)

    def encode(self, text: str) -> list[int]:
        """Returns the model's ids of a text. Those of the built-in model are its bytes."""
        if self.model is None:
            return list(text.encode())
        if self.binary is None:
            raise ValueError("an answer is a text, and the engine has no binary= to encode it: give Answer(ids=...)")
        done = subprocess.run([self.binary, "tokenize", self.model, "--jsonl"], input=json.dumps({"text": text}) + "\n",
                              capture_output=True, text=True, check=True)
        return [int(i) for i in json.loads(done.stdout)["ids"]]

    def _result(self, body: dict[str, Any], answer: Answer) -> dict[str, Any]:
        given = body.get("sampling_params") or {}
        stops, most = given.get("stop_token_ids") or [], given.get("max_new_tokens") or 1 << 31
        ids = list(answer.ids) if answer.ids is not None else self.encode(answer.text)
        if answer.ids is None and answer.finish == "stop":
            ids += stops[:1]
        told = list(answer.logprobs) if answer.logprobs is not None else [logprob_of(j, t) for j, t in enumerate(ids)]
        if len(told) != len(ids):
            raise ValueError(f"an answer of {len(ids)} tokens has {len(told)} logprobs")
        finish: dict[str, Any] = {"type": answer.finish}
        if len(ids) > most:
            ids, told, finish = ids[:most], told[:most], {"type": "length"}
        if finish["type"] == "length":
            finish["length"] = len(ids)
        elif ids and ids[-1] in stops:
            finish["matched"] = ids[-1]
        meta = {"id": body.get("rid", ""), "finish_reason": finish, "prompt_tokens": len(body["input_ids"]), "completion_tokens": len(ids),
                "cached_tokens": 0, "output_token_logprobs": [[p, t, None] for p, t in zip(told, ids)]}
        version = answer.version if answer.version is not None else self.version
        if version is not None:
            meta["weight_version"] = str(version)
        return {"text": "", "output_ids": ids, "meta_info": meta}

    def _answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        try:
            answer = self._choose(body)
            if answer.status == 200:
                return 200, self._result(body, answer)
            return answer.status, {"error": {"message": answer.text}}
        except Exception as e:      # an error of the test's function, which must become visible
            return 400, {"error": {"message": f"the script failed: {type(e).__name__}: {e}"}}

    # --- HTTP ---

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with engine._lock:
                    engine._connections.add(self)

            def finish(self) -> None:
                with engine._lock:
                    engine._connections.discard(self)
                try:
                    super().finish()
                except OSError:
                    pass

            def hang_up(self) -> None:
                try:
                    self.connection.shutdown(2)
                except OSError:
                    pass

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self.reply(200 if self.path == "/health" else 404, b"{}")

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path != "/generate":
                    self.reply(200 if self.path == "/abort_request" else 404, b"{}")
                    return
                body = json.loads(raw)
                status, answer = engine._answer(body)
                text = json.dumps(answer).encode()
                if status == 200 and body.get("stream"):
                    self.reply(200, b"data: " + text + b"\n\ndata: [DONE]\n\n", "text/event-stream")
                else:
                    self.reply(status, text)

        return Handler
