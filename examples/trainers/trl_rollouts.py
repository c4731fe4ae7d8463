# docs/trainers/trl.md explains it.
from datasets import load_dataset
from rollgate.trl import RollgateRollouts, reward
from trl import GRPOConfig, GRPOTrainer

rollouts = RollgateRollouts("swe", "http://gateway:8600", group={"attempts": 2}, engine="trl")
args = GRPOConfig(use_vllm=True, vllm_mode="server")
tasks = load_dataset("json", data_files="tasks.jsonl", split="train")
GRPOTrainer("Qwen/Qwen3-8B", reward_funcs=reward, args=args, train_dataset=tasks, rollout_func=rollouts).train()
