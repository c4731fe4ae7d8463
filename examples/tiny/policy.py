"""The tiny policy: a table of logits, learned by hand-made gradients. It reads ids and nothing else, as a model does.

The task: a message holds two digits; the right answer is their two letters (LETTER_OF) and an end. The model may write two letters by two
tokens, or by one where the tokenizer has a merged one ("ab"): text does not tell which, ids do.
"""
from __future__ import annotations

from typing import Any, Iterable

import numpy

Array = numpy.ndarray[Any, Any]

LETTERS = "abcdefgh"
LETTER_OF = "dgbhafce"                      # digit -> letter
END = 257                                   # <|im_end|>
PAIR = 259                                  # ids of "ab", "bc" ... "ha"
ACTIONS = [*(ord(c) for c in LETTERS), *range(PAIR, PAIR + 8), END]
ACTION_OF = {token: i for i, token in enumerate(ACTIONS)}
CONTEXTS = 17                               # 8 first digits, 8 second digits, done


def digits_before(ids: Iterable[int]) -> list[int]:
    """The last two digits of a prompt."""
    found = [int(t) - 48 for t in ids if 48 <= t < 56]
    if len(found) < 2:
        raise ValueError("a prompt without a task")
    return found[-2:]


def letters_in(token: int) -> int:
    return 2 if PAIR <= token < PAIR + 8 else 1


def context(task: list[int], written: int) -> int:
    """Which row of the table tells the next token, after so many letters."""
    return task[0] if written == 0 else 8 + task[1] if written == 1 else 16


def contexts(prompt: Iterable[int], answer: Iterable[int]) -> list[int]:
    """The row for each token of an answer."""
    task, written, out = digits_before(prompt), 0, []
    for token in answer:
        out.append(context(task, written))
        written += letters_in(int(token))
    return out


def log_softmax(table: Array) -> Array:
    """[..., actions] of logits as log-probabilities."""
    top = table.max(-1, keepdims=True)
    out: Array = table - top - numpy.log(numpy.exp(table - top).sum(-1, keepdims=True))
    return out


class Learner:
    """The table and Adam."""

    def __init__(self, rate: float = 0.25):
        self.table = numpy.zeros((CONTEXTS, len(ACTIONS)))
        self.rate, self.step = rate, 0
        self.m, self.v = numpy.zeros_like(self.table), numpy.zeros_like(self.table)

    def logprobs(self, rows: Array, actions: Array) -> Array:
        out: Array = log_softmax(self.table)[rows, actions]
        return out

    def update(self, rows: Array, actions: Array, weights: Array) -> None:
        """One step up sum(weights x log p); d log p(a) / d logits = onehot(a) - p."""
        weights = weights / len(rows)
        grad = numpy.zeros_like(self.table)
        numpy.add.at(grad, (rows, actions), weights)
        spread = numpy.zeros(CONTEXTS)
        numpy.add.at(spread, rows, weights)
        grad -= spread[:, None] * numpy.exp(log_softmax(self.table))
        self.step += 1
        self.m = 0.9 * self.m + 0.1 * grad
        self.v = 0.99 * self.v + 0.01 * grad ** 2
        self.table += self.rate * (self.m / (1 - 0.9 ** self.step)) / (numpy.sqrt(self.v / (1 - 0.99 ** self.step)) + 1e-8)
