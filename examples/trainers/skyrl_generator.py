# docs/trainers/skyrl.md explains it.
from rollgate.skyrl import RollgateGenerator
from skyrl.train.entrypoints.main_base import BasePPOExp

class Exp(BasePPOExp):
    def get_generator(self, cfg, tokenizer, inference_engine_client):
        return RollgateGenerator("swe", "http://gateway:8600", group={"run_timeout_s": 1800, "attempts": 2})
