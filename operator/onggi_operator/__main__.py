"""`python -m onggi_operator webhook|controller`: settings from the environment, then run.
`python -m onggi_operator plan`: what each node shares out among agents, and what would move."""

import argparse
import asyncio
import logging
import os
import sys

from onggi_operator import logs
from onggi_operator.kube.access import ApiAccess, NoAccess, from_pod
from onggi_operator.serving import stop_event
from onggi_operator.settings import (
    AccessSettings,
    ControllerSettings,
    SettingsError,
    WebhookSettings,
    read_access_settings,
    read_controller_settings,
    read_webhook_settings,
)

EX_CONFIG = 78
"""sysexits.h: what is wrong is the configuration, and a restart will not mend it."""

IN_THE_OPERATOR = (
    "It is run in the operator's own pod, which may read what it shows: kubectl -n onggi-system"
    " exec deploy/onggi-operator -- python -m onggi_operator plan"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="onggi_operator",
        description="What runs in the cluster beside the agents. The chart starts webhook and"
        " controller, with settings from the environment; plan is for people.",
    )
    parts = parser.add_subparsers(dest="part", required=True, metavar="PROGRAM")
    parts.add_parser("webhook", help="give agents to pods that ask")
    parts.add_parser("controller", help="share out nodes' memory, and report on pools")
    what = "print what each node gives and to whom, and what would be moved and why"
    plan = parts.add_parser("plan", help=what, description=what, epilog=IN_THE_OPERATOR)
    plan.add_argument(
        "--namespace", metavar="NAMESPACE", help="moves of this namespace's pods alone"
    )
    told = parser.parse_args()
    try:
        if told.part == "plan":
            return asyncio.run(_plan(_access(read_access_settings(os.environ)), told.namespace))
        settings = (
            read_webhook_settings(os.environ)
            if told.part == "webhook"
            else read_controller_settings(os.environ)
        )
        access = _access(settings)
    except (SettingsError, NoAccess) as problem:
        if told.part == "plan":  # for a person, and not for a collector of logs
            where = f". {IN_THE_OPERATOR}" if isinstance(problem, NoAccess) else ""
            sys.stderr.write(f"onggi_operator plan: {problem}{where}\n")
            return EX_CONFIG
        logs.set_up("info")
        logging.getLogger(__name__).error("cannot start: %s", problem)
        return EX_CONFIG
    logs.set_up(settings.log_level)
    asyncio.run(_run(settings, access))
    return 0


async def _plan(access: ApiAccess, namespace: str | None) -> int:
    from onggi_operator.plan_command import print_plan

    return await print_plan(access, namespace, sys.stdout)


async def _run(settings: WebhookSettings | ControllerSettings, access: ApiAccess) -> None:
    # Imported here: neither program carries the other's libraries in its memory.
    if isinstance(settings, WebhookSettings):
        from onggi_operator.webhook.main import run_webhook

        await run_webhook(settings, access, stop_event())
    else:
        from onggi_operator.controller import run_controller

        await run_controller(settings, access, stop_event())


def _access(settings: AccessSettings) -> ApiAccess:
    server, ca, token = settings.api_server, settings.api_ca_file, settings.api_token_file
    if server and ca and token:
        for variable, file in (("ONGGI_API_CA_FILE", ca), ("ONGGI_API_TOKEN_FILE", token)):
            if not (file.is_file() and os.access(file, os.R_OK)):
                raise NoAccess(f"{variable} is {file}; name a file that can be read")
        return ApiAccess(server, ca, token)
    return from_pod(os.environ)


if __name__ == "__main__":
    sys.exit(main())
