"""uni-agent's gateway suite over a started rollgate: a pytest plugin. Its sessions and actors become calls over HTTP, and its mock backends
answer behind an engine over HTTP. Its assertions, message codec, adapters and types are uni-agent's own.

Contract: uni-agent 6f4a7c9, tests/uni_agent/gateway (test_gateway_actor_on_cpu.py, test_session_multiple_chains_on_cpu.py)."""
import asyncio
import json
import types

import stand_ins

stand_ins.install()

import fastapi  # noqa: E402
import httpx  # noqa: E402
import peers_kit  # noqa: E402

# The suite's client reaches a port's app by calls over HTTP, also where the real httpx is installed.
httpx.AsyncClient, httpx.ASGITransport = stand_ins.AsyncClient, stand_ins.ASGITransport

# What verl would render with uni-agent's fake tokenizer, for the values that its tests expect.
stand_ins.module("verl.utils.tokenizer", normalize_token_ids=list)
stand_ins.module("verl.utils.tokenizer.chat_template",
                 apply_chat_template=lambda of, messages, tokenize=True, **more: of.apply_chat_template(messages, tokenize=tokenize, **more),
                 initialize_system_prompt=lambda *_, **__: [], initialize_turn_separator=lambda *_, **__: [])
stand_ins.module("verl.utils.net_utils", is_valid_ipv6_address=lambda text: ":" in text)
stand_ins.module("verl.workers.rollout.utils", run_uvicorn=None)
stand_ins.module("verl.workers.rollout.llm_server", LLMServerClient=object)


class TokenOutput(types.SimpleNamespace):
    def __init__(self, token_ids, log_probs=None, stop_reason=None, routed_experts=None, extra_fields=None, **more):
        super().__init__(token_ids=token_ids, log_probs=log_probs, stop_reason=stop_reason, routed_experts=routed_experts,
                         extra_fields=extra_fields or {}, **more)


stand_ins.module("verl.workers.rollout.replica", TokenOutput=TokenOutput)

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "stop", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty")
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
           "repetition_penalty": 1.0}

_server = None
_owners = {}    # the gateway's session id -> its GatewaySession


def server():
    global _server
    if _server is None:
        _server = peers_kit.Server(script, compat="uni-agent", workers=1, chat_template=str(peers_kit.HERE / "plain_template.jinja"))
    return _server


async def script(request):
    """The answer of a session's backend to what the gateway sends to an engine."""
    session = _owners[request["headers"]["x-smg-routing-key"]]
    session.arrived += 1
    params = {("max_tokens" if k == "max_new_tokens" else k): v for k, v in request["body"]["sampling_params"].items()}
    params = {k: v for k, v in params.items() if k in SAMPLING and v is not None and NEUTRAL.get(k) != v}
    if session.limit is None and params.get("max_tokens") == 100_000 - len(request["body"]["input_ids"]):
        del params["max_tokens"]
    call = session.backend.generate(request_id=session.name, prompt_ids=request["body"]["input_ids"], sampling_params=params,
                                    image_data=None, video_data=None)
    try:
        output = await peers_kit.run_in(session.loop, call)
    except ValueError as e:
        return {"status": 400, "body": {"error": {"message": str(e)}}}
    except Exception as e:
        return {"status": 500, "body": {"error": {"message": f"{type(e).__name__}: {e}"}}}
    plan = {"ids": list(output.token_ids), "finish": "length" if output.stop_reason == "length" else "stop", "matched": None}
    if output.log_probs is None:
        plan["drop"] = {"logprobs"}
    else:
        plan["logprobs"] = list(output.log_probs)
    version = output.extra_fields.get("min_global_steps")
    plan["version"] = "" if version is None else str(version)
    if version is not None and output.extra_fields["max_global_steps"] != version:
        last = len(plan["ids"])
        plan["versions"] = [{"version": str(version), "start": 0, "end": last - 1},
                            {"version": str(output.extra_fields["max_global_steps"]), "start": last - 1, "end": last}]
    return plan


def running_loop():
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def ask(method, path, value=None):
    body, headers = (None, None) if value is None else (json.dumps(value), {"Content-Type": "application/json"})
    return stand_ins.send(method, server().url + path, body, headers)


def detail_of(response):
    try:
        return response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return response.text


class GatewaySession:
    def __init__(self, handle, codec, *, prompt_length=None, response_length=None, sampling_params=None,
                 enable_last_assistant_rollback=True, backend=None, allowed=None):
        self.name, self.handle, self._codec, self.backend = handle.session_id, handle, codec, backend
        self.limit = prompt_length and response_length and prompt_length + response_length
        self._sampling = dict(sampling_params or {})
        self.loop, self.arrived, self._order = None, 0, asyncio.Lock()
        options = {"rollback_last_assistant": enable_last_assistant_rollback,
                   "sampling_params": {k: v for k, v in self._sampling.items() if k in SAMPLING}}
        if prompt_length is not None:
            options["prompt_length"] = prompt_length
        if response_length is not None:
            options["response_length"] = response_length
        if allowed is not None:
            options["lock_sampling"] = [name for name in SAMPLING if name not in allowed]
        made = ask("POST", "/sessions", options)
        if made.status_code != 200:
            raise ValueError(detail_of(made))
        self.id = made.json()["session_id"]
        handle.base_url, handle.reward_info_url = made.json()["base_url"], made.json()["reward_info_url"]
        _owners[self.id] = self

    @property
    def sampling_params(self):
        return dict(self._sampling)

    async def call(self, path, payload):
        """Calls arrive at the engine in the order in which they were made, as in one process."""
        self.loop = running_loop()
        async with self._order:
            before = self.arrived
            work = asyncio.ensure_future(asyncio.to_thread(ask, "POST", f"/sessions/{self.id}{path}", payload))
            while self.arrived == before and not work.done():
                await asyncio.sleep(0.001)
        return await work

    async def run_generation(self, request, backend):
        from uni_agent.gateway.session.session import GenerationOutcome
        self.backend = backend
        params = {k: v for k, v in request["sampling_params"].items() if k in SAMPLING}
        payload = {"messages": request["messages"], **({"tools": request["tools"]} if request["tools"] else {}), **params}
        response = await self.call("/v1/chat/completions", payload)
        if response.status_code != 200:
            raise fastapi.HTTPException(response.status_code, detail_of(response))
        body = response.json()
        message = {k: v for k, v in body["choices"][0]["message"].items() if (k, v) != ("refusal", None)}
        return GenerationOutcome(assistant_msg=message, finish_reason=body["choices"][0]["finish_reason"],
                                 prompt_tokens=body["usage"]["prompt_tokens"], completion_tokens=body["usage"]["completion_tokens"])

    async def set_reward_info(self, reward_info=None):
        await self.call("/reward_info", {"reward_info": reward_info or {}})

    async def finalize(self):
        response = await self.call("/finalize", {"format": "json"})
        if response.status_code != 200:
            raise RuntimeError(detail_of(response))
        return [trajectory(t) for t in response.json()["trajectories"]]

    async def abort(self):
        await self.call("/abort", {})

    def state(self):
        response = ask("GET", f"/sessions/{self.id}")
        if response.status_code != 200:
            raise fastapi.HTTPException(response.status_code, detail_of(response))
        return response.json()

    def snapshot_state(self):
        state = self.state()
        chains = state["active_chains"]
        return {"session_id": self.name, "phase": {"open": "ACTIVE"}.get(state["phase"], state["phase"].upper()),
                "created_at": state["created_at"], "updated_at": state["updated_at"], "num_trajectories": state["num_trajectories"],
                "has_active_trajectory": bool(chains), "num_active_chains": len(chains), "active_chain_ids": [c["id"] for c in chains],
                "active_chain_tip_hashes": {c["id"]: c["tip_hash"] for c in chains}, "rollback_count": state["rollback_count"],
                "rollback_dropped_trainable_tokens_total": state["rollback_dropped_trainable_tokens_total"]}

    @property
    def active_chains(self):
        by_tip = {t["turns"][-1]["response_id"]: (i, t) for i, t in enumerate(ask("GET", f"/sessions/{self.id}/trajectories").json()["trajectories"])}
        return [chain(c, *by_tip[c["response_id"]]) for c in self.state()["active_chains"]]

    @property
    def reserved_chain_ids(self):
        return {c["id"] for c in self.state()["active_chains"] if c["in_flight"] is not None}


def chain(c, seq, t):
    messages = [{k: v for k, v in m.items() if k != "generated"} for m in t["messages"]]
    buffer = types.SimpleNamespace(prompt_ids=t["prompt_ids"], response_ids=t["response_ids"], response_mask=t["response_mask"],
                                   response_logprobs=t["response_logprobs"])
    return types.SimpleNamespace(chain_id=c["id"], message_tip_hash=c["tip_hash"], message_history=messages, buffer=buffer, updated_seq=seq)


def trajectory(t):
    from uni_agent.gateway.session.types import Trajectory
    extra = {k: v for k, v in t["extra_fields"].items() if k in ("min_global_steps", "max_global_steps", "materialization_reason")}
    return Trajectory(prompt_ids=t["prompt_ids"], response_ids=t["response_ids"], response_mask=t["response_mask"],
                      response_logprobs=t["response_logprobs"], reward_info=t["reward_info"] or {}, num_turns=t["num_turns"],
                      extra_fields=extra)


class _GatewayActor:
    def __init__(self, config, backend):
        self.config, self.backend, self.sessions = config, backend, {}
        self._app = types.SimpleNamespace(url_of=self.url_of)

    def url_of(self, path):
        _, head, name, rest = path.split("/", 3)
        return f"{server().url}/{head}/{self.sessions[name].id}/{rest}"

    async def start(self):
        pass

    async def shutdown(self):
        pass

    async def create_session(self, session_id, sampling_params=None, **_):
        from uni_agent.gateway.session.types import SessionHandle
        c = self.config
        session = GatewaySession(SessionHandle(session_id=session_id), None, prompt_length=c.prompt_length, response_length=c.response_length,
                                 sampling_params=sampling_params, enable_last_assistant_rollback=c.enable_last_assistant_rollback,
                                 backend=self.backend, allowed=c.allowed_request_sampling_param_keys)
        self.sessions[session_id] = session
        return session.handle

    async def _handle(self, path, session_id, payload):
        session = self.sessions.get(session_id)
        response = await session.call(path, payload) if session else ask("POST", f"/sessions/{session_id}{path}", payload)
        if response.status_code != 200:
            raise fastapi.HTTPException(response.status_code, detail_of(response))
        if payload.get("stream"):
            async def body():
                yield response.content
            from fastapi.responses import StreamingResponse
            return StreamingResponse(body())
        return types.SimpleNamespace(status_code=200, body=response.content, headers=response.headers)

    async def _handle_openai_chat_completions(self, session_id, payload):
        return await self._handle("/v1/chat/completions", session_id, payload)

    async def _handle_anthropic_messages(self, session_id, payload):
        return await self._handle("/v1/messages", session_id, payload)

    async def get_session_state(self, session_id):
        return self.sessions[session_id].snapshot_state()

    async def finalize_session(self, session_id):
        return await self.sessions[session_id].finalize()

    async def abort_session(self, session_id):
        await self.sessions[session_id].abort()


def pytest_configure(config):
    import uni_agent.gateway.gateway as gateway
    import uni_agent.gateway.session as session
    session.GatewaySession = GatewaySession
    gateway._GatewayActor, gateway.GatewayActor = _GatewayActor, stand_ins.actor_class(_GatewayActor)


def pytest_unconfigure(config):
    if _server:
        _server.stop()
