"""The check that this build of Fairring meets the torch it was built for.

PyTorch's C++ interface changes with each minor version: a module built for another one fails to load with an
undefined symbol, or worse, loads. So the package checks before it loads its module.
"""

import re
import sys


def check_torch(installed: str) -> None:
    """Raises ImportError, with the command to run, unless the C++ module was built for this torch.

    installed: torch.__version__, such as "2.15.0+cu132".
    """
    try:
        from fairring._build_info import BUILT_FOR_TORCH
    except ModuleNotFoundError as error:
        raise ImportError(
            "Fairring's C++ module is not built here; run: make build (in a checkout), or "
            f"{sys.executable} -m pip install --no-build-isolation <Fairring's directory>"
        ) from error
    match = re.match(r"\d+\.\d+", installed)
    if match is None or match[0] != BUILT_FOR_TORCH:
        raise ImportError(
            f"this Fairring was built for torch {BUILT_FOR_TORCH}, but torch {installed} is installed; "
            f"run: {sys.executable} -m pip install 'torch=={BUILT_FOR_TORCH}.*', or build Fairring for the torch you "
            f"have: {sys.executable} -m pip install --no-build-isolation --force-reinstall --no-deps "
            "<Fairring's directory>"
        )
