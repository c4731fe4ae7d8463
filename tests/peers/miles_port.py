"""miles' session server suite over a started rollgate: a pytest plugin. Its server becomes a rollgate process with the same settings, and
its mock engine's chat answers come out of an engine over HTTP. Its assertions, codec and matchers are miles' own.

Contract: miles 31f1ca9, tests/fast/router (test_sessions.py, test_sessions_v1_pins.py, test_session_race_conditions.py,
test_sessions_v2.py)."""
import asyncio
import contextlib
import dataclasses
import importlib
import importlib.util
import json
import re
import socket
import sys
import time
import types
import uuid
from pathlib import Path

import pytest

import stand_ins

stand_ins.install()

import peers_kit  # noqa: E402

LAYERS, TOPK = 2, 2
SPECIAL = {256: "<|im_start|>", 257: "<|im_end|>", 258: "<|endoftext|>"}


class Tokenizer:
    """The bytes of tests/data/models/chatml-bytes."""

    def encode(self, text, add_special_tokens=False):
        return list(text.encode())

    def decode(self, ids, skip_special_tokens=False):
        return "".join(SPECIAL.get(i) or chr(i) for i in ids)

    def convert_ids_to_tokens(self, i):
        return str(i)

    def convert_tokens_to_ids(self, token):
        return int(token)


@dataclasses.dataclass(frozen=True)
class ProcessResultMetaInfo:
    weight_version: str = None
    routed_experts: str = None

    def to_dict(self):
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


@dataclasses.dataclass(frozen=True)
class ProcessResult:
    text: str
    finish_reason: str = "stop"
    cached_tokens: int = 0
    meta_info: ProcessResultMetaInfo = ProcessResultMetaInfo()


class Request:
    def __init__(self, payload):
        self.payload = payload

    async def json(self):
        return self.payload


class MockSGLangServer:
    """miles' mock by its interface: what a test patches here shapes what the engine answers."""

    def __init__(self, process_fn, latency=0.0):
        self.tokenizer, self.process_fn, self.latency = Tokenizer(), process_fn, latency
        self.request_log, self.current, self.max_concurrent = [], 0, 0
        self.url = f"backend:{uuid.uuid4().hex}"

    def reset_stats(self):
        self.request_log.clear()
        self.current = self.max_concurrent = 0

    async def script(self, request):
        """What the suite's mock says to a chat, as the plan of an answer to ids."""
        body = request["body"]
        payload = {"input_ids": body["input_ids"], **{k: v for k, v in body.items() if k not in ("input_ids", "rid", "stream")}}
        self.current += 1
        self.max_concurrent = max(self.max_concurrent, self.current)
        try:
            response = await self._handle_generate_like_request(Request(payload), self._compute_chat_completions_response)
        finally:
            self.current -= 1
        answer = json.loads(response.body)
        if response.status_code != 200:
            return {"status": response.status_code, "body": answer}
        choice = answer["choices"][0]
        pairs = choice["meta_info"]["output_token_logprobs"]
        plan = {"ids": [i for _, i in pairs], "logprobs": [p for p, _ in pairs], "matched": None,
                "finish": "length" if choice["finish_reason"] == "length" else "stop"}
        if choice["finish_reason"] != "length":
            plan.update(ids=plan["ids"] + [257], logprobs=plan["logprobs"] + [0.0], matched=257)
        if body.get("return_routed_experts"):
            rows = len(body["input_ids"]) + len(plan["ids"]) - 1 - body.get("routed_experts_start_len", 0)
            plan["experts"] = bytes(4 * LAYERS * TOPK * rows)
        if isinstance(choice["meta_info"].get("weight_version"), str):
            plan["version"] = choice["meta_info"]["weight_version"]
        return plan

    async def _handle_generate_like_request(self, request, compute):
        payload = await request.json()
        self.request_log.append(payload)
        await asyncio.sleep(self.latency)
        return stand_ins.JSONResponse(compute(payload))

    def _compute_chat_completions_response(self, payload):
        result = self.process_fn(self.tokenizer.decode(payload["input_ids"]))
        ids = self.tokenizer.encode(result.text)
        pairs = [(-1 / 128 * i, t) for i, t in enumerate(ids)]
        return {"id": f"chatcmpl-{uuid.uuid4().hex[:8]}", "object": "chat.completion", "created": int(time.time()), "model": "mock-model",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": result.text, "tool_calls": None},
                             "logprobs": {"content": [{"token": str(t), "token_id": t, "logprob": p} for p, t in pairs]},
                             "finish_reason": result.finish_reason,
                             "meta_info": {"output_token_logprobs": pairs, "completion_tokens": len(ids), **result.meta_info.to_dict()}}]}


_mocks = {}


@contextlib.contextmanager
def with_mock_server(process_fn=None, latency=0.0, **_):
    mock = MockSGLangServer(process_fn, latency)
    _mocks[mock.url] = mock
    try:
        yield mock
    finally:
        del _mocks[mock.url]


class SessionServer:
    def __init__(self, args, backend_url):
        self.app = types.SimpleNamespace(args=args, backend_url=backend_url)

    @property
    def use_addition_r3(self):
        raise NotImplementedError("a property of miles' own object")


class UvicornThreadServer:
    def __init__(self, app, host, port):
        self.app, self.listen = app, f"{host}:{port}"

    def start(self):
        mock, args = _mocks[self.app.backend_url], self.app.args
        settings = {"compat": "miles"}
        if getattr(args, "use_session_server", None) == "v2":
            settings.update(history="tree", samples_select="leaves")
        if getattr(args, "use_rollout_routing_replay", False):
            settings.update(routed_experts=True, config={"num_hidden_layers": LAYERS, "num_experts_per_tok": TOPK, "num_experts": 8})
        self.server = peers_kit.Server(mock.script, listen=self.listen, **settings)

    def stop(self):
        self.server.stop()


def free_port(_=None):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# --- the state of a session, which rollgate and miles write differently ---

def as_miles(state):
    """miles' records are those of the newest branch; its tree has the generated nodes alone."""
    nodes = {n["id"]: n for n in state["tree"]["nodes"]}
    numbers = {n["id"]: i for i, n in enumerate(n for n in nodes.values() if n["generated"])}

    def above(node):
        parent = nodes[node]["parent"]
        while parent is not None and parent not in numbers:
            parent = nodes[parent]["parent"]
        return None if parent is None else numbers[parent]
    tree = {"nodes": [{**nodes[i], "id": number, "parent": above(i)} for i, number in numbers.items()],
            "leaves": [{"node_id": numbers[leaf["node_id"]], "path_node_ids": [numbers[i] for i in leaf["path_node_ids"]]}
                       for leaf in state["tree"]["leaves"]]}
    newest = max(tree["leaves"], key=lambda leaf: leaf["node_id"], default={"path_node_ids": []})["path_node_ids"]
    calls = {a["response_id"]: (r, a) for r in state["records"] for a in r["answers"]}
    records = [as_record(*calls[tree["nodes"][i]["response_id"]]) for i in newest]
    return {"session_id": state["session_id"], "records": records,
            "metadata": {"tree": tree, "accumulated_token_ids": state["accumulated_token_ids"],
                         "tito_session_mismatch": state["tito_session_mismatch"], "max_trim_tokens": 0}}


def as_record(record, answer):
    meta = {"output_token_logprobs": [[None, i] for i in answer["output_ids"]], "completion_tokens": len(answer["output_ids"])}
    return {"timestamp": record["timestamp"], "method": "POST", "path": "/v1/chat/completions", "status_code": 200,
            "request": {**record["request"], "input_ids": record["prompt_ids"]},
            "response": {"choices": [{"message": answer["message"], "finish_reason": answer["finish_reason"], "meta_info": meta}]}}


def get(url, timeout=30.0, **more):
    of_session = re.fullmatch(r"https?://[^/]+/sessions/[^/?]+", url)
    response = stand_ins.send("GET", url + "?records=1" if of_session else url, timeout=timeout, **more)
    if of_session and response.status_code == 200:
        response.content = json.dumps(as_miles(response.json())).encode()
    return response


def replace(name, **members):
    """The module is the port's, its package miles' own."""
    made = types.ModuleType(name)
    vars(made).update(members)
    sys.modules[name] = made


def strict_message_matches(a, b):
    return importlib.import_module("miles.utils.chat_template_utils.message_matcher_hub").strict_message_matches(a, b)


importlib.import_module("requests").get = get
replace("miles.rollout.session.server", SessionServer=SessionServer)
replace("miles.utils.test_utils.mock_sglang_server", MockSGLangServer=MockSGLangServer, ProcessResult=ProcessResult,
        ProcessResultMetaInfo=ProcessResultMetaInfo, with_mock_server=with_mock_server)
replace("miles.utils.test_utils.uvicorn_thread_server", UvicornThreadServer=UvicornThreadServer)
replace("miles.utils.http_utils", find_available_port=free_port, is_port_available=lambda port: True)
replace("miles.utils.chat_template_utils", strict_message_matches=strict_message_matches,
        __path__=[str(Path(importlib.util.find_spec("miles.utils").origin).parent / "chat_template_utils")])


@pytest.fixture(scope="class")
def router_env():
    """That of miles' test_sessions.py, which its conftest.py passes on."""
    tests = importlib.import_module("tests.fast.router.test_sessions")
    made = getattr(tests.router_env, "__wrapped__", None) or tests.router_env.__pytest_wrapped__.obj
    yield from made()
