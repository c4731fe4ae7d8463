# docs/trainers/rllm.md explains it.
import rollgate.rllm

rollgate.rllm.install(url="http://gateway:8600", session={"ttl_s": 3600}, export={"pick": "drop_retries"})
