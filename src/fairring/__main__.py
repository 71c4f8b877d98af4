"""`python -m fairring` is the console script `fairring`."""

import sys

from fairring.cli import main

sys.exit(main())
