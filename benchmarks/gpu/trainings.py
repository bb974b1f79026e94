"""Which networks train how: the one table that measuring, predicting and the report are made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Training:
    """One training of a network of `models`, in bf16 autocast over fp32 weights."""

    name: str
    build: str  # a function or class of `models`
    batch: int
    sample: tuple[int, ...] = ()  # shape of a picture or volume
    tokens: int = 0  # of a sequence of words, instead
    target: str = "class"  # or "pixels", "values", "words"
    last: bool = False  # channels last
    optimizer: str = "momentum"
    compiled: bool = False  # by torch.compile
    graph: bool = False  # replayed as a CUDA graph
    recompute: bool = False  # each layer of a transformer again in the backward pass
    train: str = "full"  # as a model spec says it
    read_as: str = ""  # the function whose network the oracle reads, where `train` says the rest
    tiny: dict[str, Any] = field(default_factory=dict)  # arguments of `build` for a dry run
    tiny_sample: tuple[int, ...] = ()

    def small(self) -> Training:
        """Return the same training at a size that a processor runs in a second."""
        tokens = 16 if self.tokens else 0
        return replace(self, batch=2, sample=self.tiny_sample, tokens=tokens)


def _words(name: str, build: str, batch: int, tokens: int, **more: Any) -> Training:
    tiny = {"layers": 2, "hidden": 128}
    return Training(name, build, batch, tokens=tokens, target="words", optimizer="adam", tiny=tiny,
                    **more)  # fmt: skip


PICTURE = (3, 224, 224)
RESNET50 = Training("resnet50", "resnet50", 128, PICTURE, last=True, tiny={"blocks": (1, 1)},
                    tiny_sample=(3, 32, 32))  # fmt: skip
VIT = Training("vit-l16", "ViT", 32, PICTURE, optimizer="adam", tiny_sample=(3, 32, 32),
               tiny={"layers": 2, "hidden": 128, "side": 32})  # fmt: skip
GPT2_XL = _words("gpt2-xl", "gpt2_xl", 4, 1024)
LLAMA = _words("llama-1b", "llama_1b", 4, 2048)
COSMOFLOW = Training("cosmoflow-128", "cosmoflow", 8, (4, 128, 128, 128), target="values",
                     tiny={"floors": 2, "size": 16}, tiny_sample=(4, 16, 16, 16))  # fmt: skip
TRAININGS = (  # in order of worth
    RESNET50,
    LLAMA,
    Training("unet3d", "UNet3d", 2, (1, 128, 128, 128), target="pixels",
             tiny={"widths": (4, 8, 16)}, tiny_sample=(1, 16, 16, 16)),
    _words("bert-large", "bert_large", 16, 512),
    Training("convnext-t", "convnext_tiny", 64, PICTURE, last=True, optimizer="adam",
             tiny={"blocks": (1, 1)}, tiny_sample=(3, 32, 32)),
    GPT2_XL,
    VIT,
    COSMOFLOW,
    _words("llama-1b lora", "llama_lora", 4, 2048, train="lora:16:attention",
           read_as="llama_1b"),
    _words("mixture-8", "mixture", 4, 2048),
    Training("efficientnet-b0", "efficientnet_b0", 128, PICTURE, last=True,
             tiny={"stages": 3}, tiny_sample=(3, 32, 32)),
    Training("deepcam", "DeepCam", 2, (16, 768, 1152), target="pixels", last=True,
             tiny={"middle": 1}, tiny_sample=(16, 32, 32)),
    replace(LLAMA, name="llama-1b compiled", compiled=True),
    replace(RESNET50, name="resnet50 graph", graph=True),
    replace(LLAMA, name="llama-1b graph", graph=True),
    replace(COSMOFLOW, name="cosmoflow-128 graph", graph=True),
    replace(GPT2_XL, name="gpt2-xl recomputed", recompute=True),
    replace(LLAMA, name="llama-1b recomputed", recompute=True),
    replace(VIT, name="vit-l16 recomputed", recompute=True),
)  # fmt: skip
