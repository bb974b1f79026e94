#!/bin/sh
deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed --deepspeed_config ds_config.json
