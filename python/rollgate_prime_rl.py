"""verifiers finds environments by the name of a module that has no dots: `env.id = "rollgate-prime-rl"`."""
from rollgate.prime_rl import RollgateEnv

__all__ = ["RollgateEnv"]
