"""What the ports share: a started rollgate, and an engine over HTTP whose answers a coroutine of the peer's suite makes."""
import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "blackbox"))

import gateway as g  # noqa: E402
from stub_engines import StubEngine  # noqa: E402

MODEL = g.MODELS / "chatml-bytes"


class ScriptedEngine(StubEngine):
    """An SGLang server: `script(request)` is awaited for each call and returns the entry of a plan (stub_engines.py)."""

    def __init__(self, script):
        super().__init__("sglang")
        self.script = script

    async def answer(self, writer, route, body, plan):
        if self.is_forced(body) or self.is_probe(body):
            return await super().answer(writer, route, body, plan)
        request = next(r for r in reversed(self.requests) if r["body"] is body)
        return await super().answer(writer, route, body, {**plan, **await self.script(request)})


class Server:
    """A gateway in front of a scripted engine."""

    def __init__(self, script, listen=None, config=None, **settings):
        """config: a config.json of the model."""
        self.folder = None
        if config:
            self.folder = tempfile.mkdtemp(prefix="rgp")
            shutil.copytree(MODEL, self.folder, dirs_exist_ok=True)
            Path(self.folder, "config.json").write_text(json.dumps(config))
        self.engine = ScriptedEngine(script).__enter__()
        settings = {"engine": self.engine.setting, "engine-retries": 0, "model": self.folder or str(MODEL), "tool-parser": "hermes",
                    "context-length": 100_000, "workers": None, **settings}
        self.gateway = g.Gateway(**settings)
        if listen:
            self.gateway.port = int(listen.rpartition(":")[2])
            self.gateway.settings["listen"] = listen
        self.gateway.start()

    @property
    def url(self):
        return self.gateway.url

    def stop(self):
        self.gateway.stop()
        self.gateway.destroy()
        self.engine.__exit__()
        if self.folder:
            shutil.rmtree(self.folder)


def run_in(loop, coroutine):
    """Runs a coroutine in the loop of the test that waits for it; without one, here."""
    async def bridge():
        if loop is None or loop is asyncio.get_running_loop():
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))
    return bridge()
