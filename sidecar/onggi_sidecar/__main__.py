"""`python -m onggi_sidecar` is the `onggi` command."""

import sys

from onggi_sidecar.cli import main

if __name__ == "__main__":
    sys.exit(main())
