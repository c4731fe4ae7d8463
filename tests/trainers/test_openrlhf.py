"""OpenRLHF: the loading of an agent, and the Experience that its generator makes of a sample."""
import types

import own

own.use("openrlhf", without=["ray", "transformers", "deepspeed", "vllm", "datasets", "peft", "flash_attn", "wandb", "accelerate", "pylatexenc"])

from openrlhf.trainer.ppo_utils.experience import Experience     # noqa: E402
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator     # noqa: E402
from openrlhf.trainer.ray.vllm_engine import _load_agent_executor     # noqa: E402

from test_adapters import run     # noqa: E402

AGENT = """from rollgate.openrlhf import RollgateExecutor

class AgentExecutor(RollgateExecutor):
    def __init__(self):
        super().__init__("agent", "{url}", group={{"attempts": 1}}, engine=None)
"""


def test_experiences_are_what_the_engine_sampled(place, tmp_path):
    (tmp_path / "agent.py").write_text(AGENT.format(url=place.url))
    executor = _load_agent_executor(str(tmp_path / "agent.py"))
    params = types.SimpleNamespace(temperature=1.0, top_p=1.0, logprobs=1, max_tokens=64)
    rows = []
    for kind in ("x", "yy"):
        sample = run(executor.execute(kind, "label", params, 256, None, None))
        made = SamplesGenerator._process_response_into_experience(None, sample, max_len=256)
        assert type(made) is Experience and made.rewards.tolist() == made.scores.tolist() == [0.5] and made.info["acc"].tolist() == [1.0]
        rows.append((made.sequences[0].tolist(), [0, *made.action_mask[0].tolist()], [0.0, *made.rollout_log_probs[0].tolist()]))
    place.check(rows)
