"""Families of models by the names of Hugging Face configs, each as a block or as layers.

A family is one function from a config to the body of a spec, registered by its `model_type`.

base          the registry, the sizes of every family, the length of its sequence in training
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
