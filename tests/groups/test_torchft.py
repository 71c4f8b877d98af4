"""fairring.torchft without torchft installed; tests/libraries/test_torchft.py has the rest."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import pytest

NEEDS = r"^fairring\.torchft needs (torchft, not installed here|the reconfigure of torch 2\.15, and this is torch .*);"


@pytest.mark.skipif(find_spec("torchft") is not None, reason="torchft is installed here")
def test_without_torchft_the_module_says_in_one_line_what_to_install() -> None:
    with pytest.raises(ImportError, match=NEEDS + r" run: .*python.* -m pip install ('torch>=2\.15'|torchft-nightly)$"):
        importlib.import_module("fairring.torchft")
