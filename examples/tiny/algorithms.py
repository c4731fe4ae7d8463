"""What the tiny trainer can do with a step's rewards: each algorithm is its advantages and its weight of a token.

The gradient of a token is weight x d log p(token). ratio: the learner's probability of the token over the recorded one, at this moment.
"""
from __future__ import annotations

from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]

CLIP = 0.2
CAP = 2.0           # importance ratios are truncated here


class Ppo:
    """PPO on rewards by turn: the group's mean of a turn is its baseline."""

    epochs = 4      # gradient steps on one batch
    lag = 0         # steps between sampling and training

    def advantages(self, rewards: Array) -> Array:
        """[members, turns] of one group's rewards -> advantages."""
        out: Array = rewards - rewards.mean(0)
        return out

    def weights(self, ratio: Array, advantages: Array, staleness: Array) -> Array:
        """ratio x advantage, and 0 where the clip holds."""
        clipped = ((advantages > 0) & (ratio > 1 + CLIP)) | ((advantages < 0) & (ratio < 1 - CLIP))
        return numpy.where(clipped, 0.0, ratio * advantages)


class Grpo(Ppo):
    """The whole episode's reward, less the group's mean, over the group's deviation: one advantage for all of its tokens."""

    def advantages(self, rewards: Array) -> Array:
        episode = rewards.mean(1, keepdims=True)
        return numpy.repeat((episode - episode.mean()) / (episode.std() + 1e-6), rewards.shape[1], 1)


class Reinforce(Ppo):
    """One gradient step on each batch, with a running mean of each turn's reward as baseline."""

    epochs = 1

    def __init__(self) -> None:
        self.baseline: Any = None

    def advantages(self, rewards: Array) -> Array:
        mean = rewards.mean(0)
        before = mean if self.baseline is None else self.baseline
        self.baseline = 0.9 * before + 0.1 * mean
        out: Array = rewards - before
        return out

    def weights(self, ratio: Array, advantages: Array, staleness: Array) -> Array:
        return advantages


class OffPolicy(Ppo):
    """Trains on what older weights sampled, as an asynchronous trainer does. By the version of each token: one of this step's weights
    counts whole, one of older weights by its importance ratio, truncated at CAP, and one that is too old not at all."""

    epochs = 1
    lag = 2
    oldest = 3

    def weights(self, ratio: Array, advantages: Array, staleness: Array) -> Array:
        factor = numpy.where(staleness == 0, 1.0, numpy.minimum(ratio, CAP))
        return numpy.where(staleness > self.oldest, 0.0, factor * advantages)


ALGORITHMS = {"ppo": Ppo, "grpo": Grpo, "reinforce": Reinforce, "off-policy": OffPolicy}
