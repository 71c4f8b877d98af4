"""What `import torch` loads of Fairring, in every program of an environment that has it: next to nothing.

torch calls the entry points of the group "torch.backends" at the end of its own import. So FAIRRING_REPLACE reaches
programs that never import fairring. This module stands outside of the package, whose import registers a backend.
"""

import os


def load() -> None:
    if os.environ.get("FAIRRING_REPLACE"):
        import fairring  # noqa: F401  reads and checks the variable
