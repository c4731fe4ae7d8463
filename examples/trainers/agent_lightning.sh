# docs/trainers/agent-lightning.md explains it.
export AGL_KEY=... ROLLGATE_KEY_FILE=admin.key
python3 -m rollgate.agent_lightning swe --server http://agl:8000 --url http://gateway:8600 \
    --session '{"sampling_params": {"temperature": 1.0}}' --group '{"attempts": 2}'
