"""Stub engines that report sampling supports like the newest SGLang and vLLM, or ignore the field like old ones.

Additional keys of a plan's entry: support, the rows (default: by formula; None: the field is missing), and
support_logprobs."""
import math

from stub_engines import StubEngine


class OddsEngine(StubEngine):
    """masks: "mask", "logprobs" (vLLM with --return-sampling-mask, and -logprobs) or None (an old SGLang, vLLM by
    default). SGLang reports only on request: in the requested mode, or as "selected" if it knows no modes."""

    def __init__(self, *args, masks="logprobs", **more):
        super().__init__(*args, **more)
        self.masks = masks

    @staticmethod
    def support(plan, ids):
        """Returns the ids that each token was sampled from, and their logprobs, whose probabilities sum to 1."""
        rows = plan.get("support", [[t, t + 1, *range(j)] for j, t in enumerate(ids)])
        lps = plan.get("support_logprobs")
        return rows, lps or [[math.log((a + 1) / (len(r) * (len(r) + 1) / 2)) for a in range(len(r))] for r in rows or []]

    @staticmethod
    def sampled(ids, rows, lps):
        return [p[r.index(t)] if t in r else -1.0 for t, r, p in zip(ids, rows, lps)]

    def sglang(self, body, plan, stream, route):
        docs = super().sglang(body, plan, stream, route)
        rows, lps = self.support(plan, plan["ids"])
        if not body.get("return_sampling_mask") or not self.masks or rows is None:
            return docs
        support = self.masks == "logprobs" and body.get("sampling_logprobs_mode") == "support"
        told, at = lps if support else self.sampled(plan["ids"], rows, lps), 0
        for doc in docs:
            lo = at if self.incremental and stream else 0
            at = lo + len(doc["output_ids"])
            last = doc is docs[-1]
            doc["meta_info"].update(
                output_token_sampling_mask=rows[lo:None if last else at], output_token_sampling_mask_length=at,
                output_token_sampling_logprobs=told[lo:None if last else at])
        return docs

    def vllm(self, body, plan, stream, route):
        docs = super().vllm(body, plan, stream, route)
        rows, lps = self.support(plan, plan["ids"])
        if route != "generate" or not self.masks or rows is None:
            return docs
        at = 0
        for choice in (c for doc in docs for c in doc["choices"]):
            lo, at = at, at + len(choice["token_ids"])
            choice.update(sampling_mask=rows[lo:at], sampling_mask_logprobs=lps[lo:at] if self.masks == "logprobs" else None)
        return docs
