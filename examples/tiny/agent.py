"""The tiny agent: asks the model, gives its answer to a tool, goes on with what the tool says. TURNS answers an episode.

It is an ordinary client of a chat API and sees text alone. The scorer rewards every answer; the trainer gets those rewards by turn.
"""
from __future__ import annotations

import zlib

from policy import LETTER_OF
from rollgate.executor import Session, Task, runner

TURNS = 3


def score(task: str, answer: str) -> float:
    """0.4 for each right letter in its place, 0.2 for stopping behind two."""
    right = [LETTER_OF[int(d)] for d in task]
    return sum(0.4 for r, a in zip(right, answer) if r == a) + (0.2 if len(answer) == 2 else 0.0)


@runner("tiny", slots=32, timeout=60)
async def tiny(task: Task, session: Session) -> float:
    messages = [{"role": "user", "content": f"task {task.input[0]}"}]
    rewards: list[float] = []
    for turn in range(TURNS):
        seed = zlib.crc32(f"{task.group}/{task.rollout}/{turn}".encode())      # the same run again samples the same
        answer = await session.chat(messages, max_tokens=4, seed=seed)
        said = answer["choices"][0]["message"]["content"] or ""
        rewards.append(score(task.input[turn], said))
        await session.reward({"reward": rewards[-1]}, answer["id"])
        if turn + 1 < TURNS:
            messages += [{"role": "assistant", "content": said}, {"role": "tool", "content": f"next {task.input[turn + 1]}"}]
    return sum(rewards) / TURNS
