"""A stub engine that scores prompts like SGLang (prompt logprobs of /generate) and vLLM (prompt_logprobs of both
routes)."""
from stub_engines import StubEngine


class ScoringEngine(StubEngine):
    """Additional key of a plan's entry: scores, a function of the list of positions, which returns a changed list. A
    position is [id, logprob, [(id, logprob) ...]]."""

    @staticmethod
    def value(i, token):
        return -(1 + (i * 7 + token) % 50) / 16

    def positions(self, ids, k):
        """Makes the positions. At odd positions the sampled id is among the best."""
        out = []
        for i, t in enumerate(ids):
            own = self.value(i, t)
            best = [(t + a, own - a) if i % 2 else (t + 1 + a, own + k - a) for a in range(k)]
            out.append([t, own if i else None, best if i else None])
        return out

    def sglang(self, body, plan, stream, route):
        if body["sampling_params"].get("max_new_tokens") != 0:
            return super().sglang(body, plan, stream, route)
        k = body["top_logprobs_num"]
        told = plan.get("scores", lambda p: p)(self.positions(body["input_ids"], k))
        meta = {"id": "x", "finish_reason": {"type": "length", "length": 0}, "prompt_tokens": len(body["input_ids"]),
                "completion_tokens": 0, "cached_tokens": 0, "weight_version": "default",
                "input_token_logprobs": [[p, t, None] for t, p, _ in told], "output_token_logprobs": []}
        if k:
            meta["input_top_logprobs"] = [best and [[p, t, None] for t, p in best] for _, _, best in told]
        return [{"text": "", "output_ids": [], "meta_info": meta}]

    def vllm(self, body, plan, stream, route):
        params = body.get("sampling_params", body)
        if "prompt_logprobs" not in params:
            return super().vllm(body, plan, stream, route)
        told = plan.get("scores", lambda p: p)(
            self.positions(body.get("prompt") or body["token_ids"], params["prompt_logprobs"]))
        docs = super().vllm(body, {**plan, "ids": [1], "finish": "length"}, False, route)
        lps = [best if best is None else {str(t): {"logprob": p, "rank": 1, "decoded_token": "x"}
                                          for t, p in [(own, own_lp), *best]} for own, own_lp, best in told]
        (docs[-1] if route == "generate" else docs[-1]["choices"][0])["prompt_logprobs"] = lps
        return docs

    @property
    def scored(self):
        """The prompts that were scored."""
        return [r["body"].get("input_ids") or r["body"].get("token_ids") or r["body"].get("prompt") for r in self.requests]
