"""`python -m onggi_operator webhook|controller`: settings from the environment, then run."""

import argparse
import asyncio
import logging
import os
import sys

from onggi_operator import logs
from onggi_operator.kube.access import ApiAccess, NoAccess, from_pod
from onggi_operator.serving import stop_event
from onggi_operator.settings import (
    ControllerSettings,
    SettingsError,
    WebhookSettings,
    read_controller_settings,
    read_webhook_settings,
)

EX_CONFIG = 78
"""sysexits.h: what is wrong is the configuration, and a restart will not mend it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="onggi_operator", description=__doc__)
    parser.add_argument("part", choices=["webhook", "controller"])
    part = parser.parse_args().part
    try:
        settings = (
            read_webhook_settings(os.environ)
            if part == "webhook"
            else read_controller_settings(os.environ)
        )
        access = _access(settings)
    except (SettingsError, NoAccess) as problem:
        logs.set_up("info")
        logging.getLogger(__name__).error("cannot start: %s", problem)
        return EX_CONFIG
    logs.set_up(settings.log_level)
    asyncio.run(_run(settings, access))
    return 0


async def _run(settings: WebhookSettings | ControllerSettings, access: ApiAccess) -> None:
    # Imported here: neither program carries the other's libraries in its memory.
    if isinstance(settings, WebhookSettings):
        from onggi_operator.webhook.main import run_webhook

        await run_webhook(settings, access, stop_event())
    else:
        from onggi_operator.controller import run_controller

        await run_controller(settings, access, stop_event())


def _access(settings: WebhookSettings | ControllerSettings) -> ApiAccess:
    server, ca, token = settings.api_server, settings.api_ca_file, settings.api_token_file
    if server and ca and token:
        return ApiAccess(server, ca, token)
    return from_pod(os.environ)


if __name__ == "__main__":
    sys.exit(main())
