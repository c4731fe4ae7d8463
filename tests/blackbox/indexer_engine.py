"""A stub of SGLang with --enable-return-indexer-topk. Whole answers and last events of streams report, for every
forwarded token, which earlier positions each layer's indexer chose, from the first token on. No field says where the
rows begin. A server without the flag ignores the request's field."""
import base64
import struct

from stub_engines import StubEngine


class IndexerEngine(StubEngine):
    """layers, k: the shape of a row. told: the answer has the number of layers (SGLang since May 2026). old: the
    field is unknown. bend: a function that changes the bytes."""

    def __init__(self, *args, layers=3, k=4, told=True, old=False, **more):
        super().__init__(*args, **more)
        self.layers, self.k, self.told, self.old = layers, k, told, old

    def row(self, ids, p):
        """Returns the newest positions, which differ by layer and by the id there; -1 if there are fewer than k."""
        return [(ids[p] + p - j) % (p + 1) if j <= p else -1 for layer in range(self.layers) for j in range(layer, layer + self.k)]

    def rows(self, ids):
        return [n for p in range(len(ids) - 1) for n in self.row(ids, p)]

    def sglang(self, body, plan, stream, route):
        docs = super().sglang(body, plan, stream, route)
        if self.old or not body.get("return_indexer_topk"):
            return docs
        values = self.rows(body["input_ids"] + plan["ids"])
        raw = plan.get("bend", lambda x: x)(struct.pack(f"<{len(values)}i", *values))
        meta = docs[-1]["meta_info"]
        meta["indexer_topk"] = raw if raw is None else base64.b64encode(raw).decode()
        if self.told:
            meta["indexer_topk_num_layers"] = plan.get("layers_told", self.layers)
        return docs
