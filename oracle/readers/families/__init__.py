"""Families of models as Hugging Face configs name them, each as a block or as layers.

A family is one function from a config to the body of a spec; it is known by its `model_type`.

base          the registry, sizes that every family has, the length that it is trained at
parts         layers of lists: stacks of attention and MLP, tokens of a second sequence
decoders      language models          encoders  BERT and its kin
translators   an encoder and a decoder: T5, BART
pictures      transformers and convolutional networks of pictures
speech        transformers of sound
hybrids       state-space layers, alone or with attention
"""

from oracle.readers.families import decoders, encoders, hybrids, pictures, speech, translators
from oracle.readers.families.base import FAMILIES

__all__ = ["FAMILIES", "decoders", "encoders", "hybrids", "pictures", "speech", "translators"]
