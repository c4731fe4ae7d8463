# docs/trainers/nemo-gym.md explains it.
from rollgate.nemo_gym import RollgateAgent

if __name__ == "__main__":
    RollgateAgent.run_webserver()
