"""Tinker: data for a training loop of one's own.

    from rollgate.tinker import datum

    training_client.forward_backward([datum(t, advantage) for t in session.finalize()], "importance_sampling")

Contract: tinker d595dc2, types/datum.py, types/tensor_data.py; tinker-cookbook 9dfcc3a, rl/data_processing.py (trajectory_to_data).
"""
from __future__ import annotations

from typing import Any

import tinker

from .trajectory import Trajectory


def datum(t: Trajectory, advantage: float) -> Any:
    """Converts a trajectory of T ids to the T-1 predictions of a tinker.Datum: `target_tokens`, `logprobs` and
    `advantages`, 0 where nothing was sampled or the mask is 0. Raises ValueError for images, or missing
    log-probabilities."""
    t.without_images("Tinker's datum")
    if not t.has_tokens or t.response_logprobs is None:
        raise ValueError(f"session {t.session_id}: the engine told no {'log-probabilities' if t.has_tokens else 'ids'}")
    ids, mask = t.ids.tolist(), t.whole(t.response_mask, 0)[1:]
    logprobs = t.whole(t.response_logprobs, 0.0)[1:]
    inputs = {"target_tokens": ids[1:], "logprobs": [float(p) if on else 0.0 for p, on in zip(logprobs, mask)],
              "advantages": [advantage if on else 0.0 for on in mask]}
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(ids[:-1]), loss_fn_inputs=inputs)
