"""Training steps by DeepSpeed's own engine; its messages are part of the passes."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from oracle.executor.pytorch.replicas import OPTIMIZERS, remake
from oracle.executor.pytorch.setting import Setting
from oracle.executor.pytorch.training import Training


class DeepspeedTraining(Training):
    """A network in `deepspeed.initialize`, with PyTorch's optimizer inside ZeRO."""

    def __init__(self, setting: Setting, rate: float) -> None:
        if setting.device.type == "cpu":
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
        os.environ.setdefault("LOCAL_RANK", str(setting.device.index or 0))
        import deepspeed

        # ranks of one host send as those of several do, and nothing is compiled as they start
        deepspeed.comm.torch.build_shm_op = lambda: None
        network = setting.network()
        remake(network, setting.remade)
        kind, options = OPTIMIZERS[setting.job.optimizer]
        optimizer = kind(network.parameters(), lr=rate, **options)
        engine, zero_optimizer, *_ = deepspeed.initialize(
            model=network, optimizer=optimizer, config=configuration(setting),
            dist_init_required=False,
        )  # fmt: skip
        self.engine, self.gathered = engine, deepspeed.zero.GatheredParameters
        super().__init__(setting, [network], engine, zero_optimizer)

    def step(self, x: Tensor, target: Tensor) -> Tensor:
        losses = []
        for a, b in self.micro_batches:
            with self.phase("forward"):
                loss = self.loss(self.engine(self.narrowed(x[a:b])), target[a:b])
            with self.phase("backward"):  # micro-batches add up, replicas' gradients are averaged
                self.engine.backward(loss * self.replicas, scale_wrt_gas=False)
            with self.phase("update"):  # of the last one
                self.engine.step()
            losses.append(loss.detach())
        self.updates += 1
        return torch.stack(losses).sum()

    def narrowed(self, x: Tensor) -> Tensor:
        """Samples in the type of the weights; words stay words."""
        narrow = self.setting.narrow
        return x.to(narrow) if narrow and x.is_floating_point() else x

    def full_weights(self) -> dict[str, Tensor]:
        with self.gathered(list(self.engine.parameters())):
            return super().full_weights()

    def kept_bytes(self) -> dict[str, float]:
        """Nothing: DeepSpeed keeps tensors in buffers that nothing here counts."""
        return {}


def configuration(setting: Setting) -> dict[str, Any]:
    """The configuration of DeepSpeed: micro-batches, precision and what is sharded."""
    pieces = setting.micro_batches
    exchange, data = setting.software.exchange, setting.plan.axis("data")
    numbers = {"data": setting.degree("data"), "devices": setting.wire.mesh.size}
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": pieces[0][1] - pieces[0][0],
        "gradient_accumulation_steps": len(pieces), "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0,  # as in all engines here; DeepSpeed's default is 1
        "zero_optimization": {
            "stage": setting.zero, "overlap_comm": bool(data.overlap[0, 0]),
            "reduce_bucket_size": int(exchange.piece(4.0, numbers).max() / 4),
        },
    }  # fmt: skip
    if setting.narrow:
        settings[setting.job.precision] = {"enabled": True}
    return settings
