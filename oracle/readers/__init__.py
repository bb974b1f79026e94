"""Files of other tools, read: logs, topologies, kernels, models, jobs; one module a format.

logs/         logs of collectives, of storage, topologies: every module is a format
log_files     logs by the names of the command line: files, folders, and facts the log leaves out
closings      runs of a log, from header to closing line
storage_samples  rates of files and of operations on them, printed by tools of storage
json_lines    lines of JSON of our own measurements
matrices      matrices of device pairs that a log prints
runs/         logs and profiles of training runs: every module is a format
node_levels   the levels of a node, from its NVLinks and PCIe roots
onnx_bytes    the bytes of an ONNX file without the values of its tensors
trainings     CSV of complete trainings: their batches and lengths
kernels       CSV of measured kernels
importers/    models of other tools as specs: every module is a format, found by itself
jobs/         files that start a training, as settings with their places: one module a format
frameworks/   these settings as a model, a software, a plan and a batch: one module a framework
families/     the models that a Hugging Face config may name: one module a kind of network
config_json   the fields of a Hugging Face config, read by type
operations graph          a traced graph of operations
layering folding counted  the layers of the graph; operators without a layer kind, as counted
torch_trace torch_ops torch_counts  the tracing of torch modules, and the cost of each call
spec_text     the YAML of an imported model
"""
