"""An engine of a different kind than --engine says, and addresses that contain a part of the API."""
import json
import subprocess

import gateway as g
import pytest
from stub_engines import StubEngine

# What real servers answer to GET, by kind: SGLang 0.5, vLLM 0.11, llama-server.
PAGES = {
    "sglang": {"/server_info": {"context_length": 4096}, "/get_server_info": {}, "/model_info": {"model_path": "m"},
               "/v1/models": {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 4096}]}, "/generate": 405},
    "vllm": {"/version": {"version": "0.11"}, "/v1/models": {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]},
             "/inference/v1/generate": 405, "/v1/completions": 405},
    "llamacpp": {"/props": {"n_ctx": 4096}, "/v1/models": {"data": [{"id": "m", "owned_by": "llamacpp"}]}},
}
# The same behind what hides a part of it.
HIDDEN = {"old sglang": ("sglang", ["/server_info", "/v1/models"]), "bare sglang": ("sglang", ["/server_info", "/get_server_info",
          "/model_info", "/v1/models"]), "bare vllm": ("vllm", ["/v1/models"]), "development vllm": ("vllm", [])}


class Server(StubEngine):
    """A stub of model calls with a kind's pages."""

    def __init__(self, name):
        kind, hidden = HIDDEN.get(name, (name, []))
        super().__init__(kind)
        self.pages = {k: v for k, v in PAGES[kind].items() if k not in hidden}
        if name.startswith("development"):
            self.pages["/server_info"] = {"vllm_config": {}}
        self.asked = []

    async def one(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.decode("latin1").split("\r\n")[0].split()
        if method != "GET" or target == "/health":
            reader._buffer[:0] = head   # the stub reads it  # noqa: SLF001
            return await super().one(reader, writer)
        self.asked.append(target)
        page = self.pages.get(target, 404)
        if isinstance(page, int):
            return await self.reply(writer, page, b"{}")
        return await self.reply(writer, 200, json.dumps(page).encode())


def ready(gateway):
    return gateway.get("/ready").status == 200


@pytest.mark.parametrize("said", PAGES)
@pytest.mark.parametrize("real", [*PAGES, *HIDDEN])
def test_an_engine_of_another_kind_is_not_ready(start, said, real):
    kind = HIDDEN.get(real, (real,))[0]
    with Server(real) as engine:
        gateway = start(engine=f"{said}:{engine.url}", workers=1, engine_health_interval="100ms")
        if said == kind:
            g.wait_until(lambda: ready(gateway), 20, "it is ready")
            return
        gateway.allow("an engine is of a different kind")
        gateway.wait_line(f"error .*an engine is of a different kind.*kind={said} is={kind}")
        g.stays(lambda: not ready(gateway), 0.5, "several probes")
        assert "no engine answers" in gateway.get("/ready").json()["reason"]
        assert len([x for x in gateway.log().split("\n") if "an engine is of a different kind" in x]) == 1


def test_another_kind_that_becomes_the_right_one(start):
    with Server("sglang") as engine:
        gateway = start(engine=f"vllm:{engine.url}", workers=1, engine_health_interval="100ms")
        gateway.allow("an engine is of a different kind")
        gateway.wait_line("an engine is of a different kind")
        engine.kind, engine.pages = "vllm", PAGES["vllm"]
        g.wait_until(lambda: ready(gateway), 20, "it is ready")
        s = gateway.post("/sessions", {}).json()
        assert gateway.chat(s, "x").status == 200


def test_a_right_engine_is_asked_no_more_than_its_settings(start):
    for kind, path in (("sglang", "/server_info"), ("vllm", "/v1/models"), ("llamacpp", "/props")):
        with Server(kind) as engine:
            gateway = start(engine=f"{kind}:{engine.url}", workers=1, engine_health_interval="50ms")
            g.wait_until(lambda: ready(gateway) and engine.probes > 3, 20, "it is ready")
            assert set(engine.asked) - {"/weight_info", "/metrics", "/version"} == {path}
            gateway.stop()


def test_an_engine_that_shows_nothing_is_let_pass(start):
    """A proxy that hides all pages of its engine."""
    with StubEngine("vllm") as engine:
        gateway = start(engine=engine.setting, workers=1)
        g.wait_until(lambda: ready(gateway), 20, "it is ready")


@pytest.mark.parametrize("address, end, right", [
    ("sglang:http://h:30000/v1", "/v1", "sglang:http://h:30000"),
    ("vllm:http://h:8000/v1/", "/v1", "vllm:http://h:8000"),
    ("p=vllm:http://h/v1,weight=2", "/v1", "vllm:http://h"),
    ("vllm:http://h/x/inference/v1/generate", "/inference/v1/generate", "vllm:http://h/x"),
    ("sglang:http://h/generate", "/generate", "sglang:http://h"),
    ("llamacpp:http://h/completion", "/completion", "llamacpp:http://h"),
    ("openai:https://h/v1/chat/completions", "/chat/completions", "openai:https://h/v1")])
def test_addresses_with_a_part_of_the_api(start, address, end, right):
    done = subprocess.run([str(g.BINARY), "config", "--check", f"--engine={address}", "--workers=1"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 2 and f"the address ends with {end}, which is added to each call: write {right}\n" in done.stderr
    if address.startswith("sglang:http://h:30000"):
        gateway = start(engine="builtin:echo", workers=1)
        answer = gateway.post("/admin/engines", {"engines": [address]})
        assert answer.status == 400 and "write sglang:http://h:30000" in answer.text, answer.text
    fine = address[:address.index(end)]
    assert subprocess.run([str(g.BINARY), "config", "--check", f"--engine={fine}", "--workers=1"], capture_output=True, timeout=60,
                          check=False).returncode == 0
