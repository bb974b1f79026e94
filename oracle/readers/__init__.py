"""Files of other tools, read: logs, topologies, kernel timings, models; one module a format.

logs/         logs of collectives, and topologies: every module is a format, found by itself
node_levels   the levels of a node, from its NVLinks and PCIe roots
kernels       CSV of measured kernels
torch torch_ops onnx graph layering     models from their graphs
huggingface families config_json network                models from their configs
"""
