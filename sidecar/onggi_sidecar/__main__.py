"""`python -m onggi_sidecar` is the `onggi` command. On an older Python, from a checkout, it says
what pip says of the distribution: else the first module that is missing would be blamed."""

import sys
from typing import Final

OLDEST: Final = (3, 11)


def refusal(version: tuple[int, ...]) -> str:
    """What is wrong with this Python; empty where nothing is."""
    if version >= OLDEST:
        return ""
    oldest, this = (".".join(map(str, each[:2])) for each in (OLDEST, version))
    return (
        f"onggi: needs Python {oldest} or newer, and this is {this}; only the client, in an engine,"
        " runs on 3.10: put it there by `onggi install-client` of a newer one"
    )


if __name__ == "__main__":
    if said := refusal(sys.version_info[:2]):
        sys.stderr.write(f"{said}\n")
        sys.exit(2)
    from onggi_sidecar.cli import main

    sys.exit(main())
