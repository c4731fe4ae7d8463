# docs/trainers/tinker.md explains it.
import asyncio
from rollgate.tinker_cookbook import RollgateStrategy, RollgateTasks
from tinker_cookbook.rl.train import Config, main

tasks = RollgateTasks(tasks="tasks.jsonl", held_out="held_out.jsonl", batch=32, n=8)
rollouts = RollgateStrategy("swe", "http://gateway:8600", group={"attempts": 2})
asyncio.run(main(Config(model_name="Qwen/Qwen3-8B", recipe_name="swe", learning_rate=4e-5, max_tokens=4096,
                        dataset_builder=tasks, rollout_error_tolerance=rollouts, log_path="runs/swe")))
