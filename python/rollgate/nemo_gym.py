"""NeMo Gym: an agent server whose rollouts run behind the gateway. The agent's app.py:

    from rollgate.nemo_gym import RollgateAgent

    if __name__ == "__main__":
        RollgateAgent.run_webserver()

/run gives the Responses object that trainers read (NeMo RL among them): each answer is an item with its ids and log-probabilities.
Contract: NeMo Gym 07d6b0d, nemo_gym/base_responses_api_agent.py (SimpleResponsesAPIAgent), base_resources_server.py (BaseRunRequest,
BaseVerifyResponse), openai_utils.py (NeMoGymResponse, TokenIDLogProbMixin), token_id_capture/builder.py (assert_prefix_contiguity).
"""
from typing import Any, Mapping, Optional       # annotations are not strings here: FastAPI reads them from a different module

from fastapi import Body
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from pydantic import ConfigDict, PrivateAttr

from .hooks import Hook, Turn, numbers_of, trained_turns
from .retries import key_from_environment
from .trajectory import Trajectory

# sampling parameters of responses_create_params -> the gateway's names
PARAMETERS = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens"}


class RollgateAgentConfig(BaseResponsesAPIAgentConfig):
    """Settings of the agent. group, session, export: as in hooks.Hook."""

    runner: str
    url: Optional[str] = None
    key: Optional[str] = None
    group: dict[str, Any] = {}
    session: dict[str, Any] = {}
    export: dict[str, Any] = {}


class RunRequest(BaseRunRequest):
    """A row of the data set. All its columns are the runner's input."""

    model_config = ConfigDict(extra="allow")


class VerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class RollgateAgent(SimpleResponsesAPIAgent):
    """One response for each rollout: the branch with the most trained tokens. A rollout that failed for good is an
    error of /run."""

    config: RollgateAgentConfig
    _hook: Hook = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        c = self.config
        if c.group.get("reward") == "external":
            raise ValueError("NeMo Gym takes rewards from its agents: reward: external would leave them unknown")
        self._hook = Hook(c.runner, c.url, key_from_environment(c.key), c.group, session=c.session, export=c.export, one_row=True)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        raise NotImplementedError("rollouts run behind the gateway: /run")

    async def run(self, body: RunRequest = Body()) -> VerifyResponse:
        """Returns the rollout's response and reward. Raises RolloutFailed, or ValueError for images, routed experts,
        or missing log-probabilities."""
        row, asked = body.model_dump(mode="json", exclude_unset=True), body.responses_create_params
        given = {ours: getattr(asked, name) for name, ours in PARAMETERS.items()}
        member = await self._hook.one(row, given)
        export = await self._hook.export(member, require_reward=True, require_trained=True)
        t = export.longest()
        response = {"id": f"resp_{member['session_id']}", "created_at": 0.0, "model": asked.model or "policy", "object": "response", "output": items_of(t),
                    "parallel_tool_calls": asked.parallel_tool_calls, "tools": asked.tools, "tool_choice": asked.tool_choice}
        out: VerifyResponse = VerifyResponse.model_validate({**numbers_of(t.reward_info), **row, "response": response, "reward": t.reward})
        return out


def items_of(t: Trajectory) -> list[dict[str, Any]]:
    """Returns the conversation after the first prompt as items of a response. The last item of each trained answer
    has its ids."""
    turns, trained = iter(t.turns), {turn.told["response_id"]: turn for turn in trained_turns([t], "NeMo Gym")}
    out: list[dict[str, Any]] = []
    begun = False
    for m in t.messages:
        if m.get("generated"):
            begun = True
            told = next(turns)
            out += answer_items(m, told["response_id"], trained.get(told["response_id"]))
        elif begun and m["role"] == "tool":
            out.append({"type": "function_call_output", "call_id": m.get("tool_call_id") or "", "output": text_of(m)})
        elif begun:
            out.append({"type": "message", "role": m["role"], "content": text_of(m)})
    return out


def answer_items(m: Mapping[str, Any], response_id: str, turn: Optional[Turn]) -> list[dict[str, Any]]:
    """Returns the items of one answer: its thinking, its text and its calls, if any."""
    items: list[dict[str, Any]] = []
    calls = m.get("tool_calls") or []
    if m.get("reasoning_content"):
        items.append({"type": "reasoning", "id": f"rs_{response_id}", "summary": [{"type": "summary_text", "text": m["reasoning_content"]}]})
    if text_of(m) or not calls:
        items.append({"type": "message", "id": f"msg_{response_id}", "role": "assistant", "status": "completed",
                      "content": [{"type": "output_text", "text": text_of(m), "annotations": []}]})
    items += [{"type": "function_call", "id": f"fc_{response_id}_{i}", "call_id": c.get("id") or "", "name": c["function"]["name"],
               "arguments": c["function"]["arguments"], "status": "completed"} for i, c in enumerate(calls)]
    if turn is not None:
        items[-1].update(prompt_token_ids=turn.prompt_ids, generation_token_ids=turn.ids, generation_log_probs=turn.logprobs)
    return items


def text_of(m: Mapping[str, Any]) -> str:
    content = m.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
