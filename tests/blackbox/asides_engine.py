"""A stub engine that also answers requests other than model calls, by path."""
import asyncio
import json

from stub_engines import StubEngine


class AsidesEngine(StubEngine):
    """`asides`: path -> answer, or a function of the request's body; bytes are sent unchanged. `asked`: the requests
    as (path, body). `aside_delay`: seconds before each answer. `aside_held`: an event that each answer waits for, or
    None. `most_asides`: the largest number of such requests at once."""

    def __init__(self, *args, asides=None, **more):
        super().__init__(*args, **more)
        self.asides, self.asked, self.aside_delay = dict(asides or {}), [], 0.0
        self.aside_held = None
        self.asides_now = self.most_asides = 0

    async def one(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.decode("latin1").split()[1].split("?")[0]
        if path not in self.asides:
            reader._buffer[:0] = head   # not one of our paths: the base class reads it
            return await super().one(reader, writer)
        lines = (x.split(":", 1) for x in head.decode("latin1").split("\r\n")[1:] if ":" in x)
        n = int(next((v for k, v in lines if k.lower() == "content-length"), 0))
        raw = await reader.readexactly(n)
        body = json.loads(raw) if raw else None
        answer = self.asides[path]      # a test that sees the request in `asked` may replace the next answer
        self.asked.append((path, body))
        self.asides_now += 1
        self.most_asides = max(self.most_asides, self.asides_now)
        try:
            await asyncio.sleep(self.aside_delay)
            while self.aside_held and not self.aside_held.is_set():
                await asyncio.sleep(0.01)
        finally:
            self.asides_now -= 1
        answer = answer(body) if callable(answer) else answer
        return await self.reply(writer, 200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def count(self, path):
        return sum(p == path for p, _ in self.asked)
