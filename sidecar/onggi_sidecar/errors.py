"""Faults of the agent, by whose fault they are.

Expected outcomes are values (see disk/outcome.py); what is raised here ends the start or the
round it happens in.
"""


class OnggiAgentError(Exception):
    """Base of the agent's own faults."""


class StartRefused(OnggiAgentError):
    """The agent cannot start as asked. The message is a sentence for whoever set it up."""


class DiskUnavailable(OnggiAgentError):
    """The disk tier cannot be used. The agent serves its host tier without it and says so: a
    cache that is smaller than asked must not keep an engine from starting."""
