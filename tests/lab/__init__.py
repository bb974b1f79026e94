"""Several hosts on one machine: how prediction is held against reality without a cluster."""
