"""A stub engine with a prefix cache of limited size, like SGLang's: blocks of tokens that requests share by prefix,
evicted least recently used first. Cached tokens cost no time. Other tokens are computed one request after the other,
as on one GPU. If all blocks are in use, requests wait."""
import asyncio
import collections

from asides_engine import AsidesEngine

BLOCK = 16


class CachingEngine(AsidesEngine):
    """`capacity`: size of the cache in tokens. `prefill_s`, `decode_s`: time for a token. `computed`: prompt tokens
    that were not in the cache. `recomputed`: those of them that had been in the cache before. `evicted`: evicted
    blocks. `waited`: requests that found all blocks in use."""

    def __init__(self, capacity, prefill_s=0.0, decode_s=0.0, metrics=True, info=None, **more):
        super().__init__("sglang", info=info or {"max_total_num_tokens": capacity, "context_length": 65536}, **more)
        if metrics:
            self.asides["/metrics"] = lambda _: self.told()
        self.capacity, self.prefill_s, self.decode_s = capacity, prefill_s, decode_s
        self.blocks = collections.OrderedDict()     # key -> number of requests that use it; least recently used first
        self.seen = set()
        self.computed = self.recomputed = self.evicted = self.waited = self.others = 0
        self.gpu, self.freed = asyncio.Lock(), asyncio.Condition()

    def told(self):
        used = BLOCK * sum(n > 0 for n in self.blocks.values()) + self.others
        return (f'# TYPE sglang:num_used_tokens gauge\nsglang:num_used_tokens{{model_name="m",tp_rank="0"}} {used}.0\n'
                f'sglang:max_total_num_tokens{{model_name="m",tp_rank="0"}} {float(self.capacity)}\n').encode()

    @staticmethod
    def keys(ids):
        out, key = [], 0
        for at in range(0, len(ids), BLOCK):
            key = hash((key, tuple(ids[at:at + BLOCK])))
            out.append(key)
        return out

    def make_room(self, more):
        """Evicts the oldest unused blocks for `more` new ones. Returns false if they do not fit."""
        most = self.capacity // BLOCK
        idle = [k for k, n in self.blocks.items() if n == 0][:max(len(self.blocks) + more - most, 0)]
        if len(self.blocks) - len(idle) + more > most:
            return False
        for k in idle:
            del self.blocks[k]
        self.evicted += len(idle)
        return True

    def hold(self, keys):
        for k in keys:
            self.blocks[k] = self.blocks.get(k, 0) + 1
            self.blocks.move_to_end(k)

    def give_back(self, keys):
        for k in keys:
            self.blocks[k] -= 1

    async def answer(self, writer, route, body, plan):
        prompt, ids = body["input_ids"], plan["ids"]
        keys = self.keys(prompt)
        whole = self.keys(prompt + ids)
        first = True
        async with self.freed:
            while True:
                known = next((i for i, k in enumerate(keys) if k not in self.blocks), len(keys))
                self.hold(keys[:known])             # these must not be evicted for the rest
                if self.make_room(len(whole) - known):
                    break
                self.give_back(keys[:known])
                self.waited += first
                first = False
                await self.freed.wait()
            held = keys[:known] + whole[known:]
            self.hold(whole[known:])
        try:
            missing = len(prompt) - min(known * BLOCK, len(prompt) - 1)
            self.computed += missing
            self.recomputed += BLOCK * sum(k in self.seen for k in keys[known:])
            self.seen.update(whole)
            async with self.gpu:
                await asyncio.sleep(missing * self.prefill_s)
            await asyncio.sleep(len(ids) * self.decode_s)
            return await super().answer(writer, route, body, {**plan, "cached": len(prompt) - missing})
        finally:
            async with self.freed:
                self.give_back(held)
                self.freed.notify_all()
