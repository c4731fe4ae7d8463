# docs/trainers/areal.md explains it.
from areal import PPOTrainer
from rollgate.areal import RollgateWorkflow

def train(config, tasks, held_out):
    workflow = RollgateWorkflow("swe", "http://gateway:8600", group={"attempts": 2}, sampling_params={"temperature": 1.0})
    with PPOTrainer(config, train_dataset=tasks, valid_dataset=held_out) as trainer:
        trainer.train(workflow=workflow, eval_workflow=workflow)
