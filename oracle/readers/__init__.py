"""One file a format in: logs of collectives, kernel tables, topologies, models of other tools.

logs          finds the format of a log; samples of collectives
nccl_tests nccl_json osu measurement    formats of logs
kernels       measured kernels
nccl_topology slurm_topology topo_matrix node_levels    how devices are joined
torch torch_ops onnx graph layering                     models from their graphs
huggingface families config_json network                models from their configs
"""
