"""What can be wrong with what the agent is told or finds."""


class AgentError(Exception):
    """One line: what is wrong, where, what to do next."""
