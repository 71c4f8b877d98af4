"""Becomes the C++ module for the torch that is installed, on its first import. Its types stand in _core.pyi."""

import sys

import torch

from fairring._modules import load_for

sys.modules[__name__] = load_for(torch.__version__)
