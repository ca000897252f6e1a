"""Which names of nodes are one, as the books call each (`ledger.node_names`)."""

from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.store.session import Session


def name_nodes(session: Session) -> None:
    """Put nodes that go by two names, and what the books call each, into the table `node_names` (node, called)."""
    for name in ("allocations", "devices", "outages"):
        session.view_table(name, name)
    session.materialize("node_names", recall("node names", _compile_names)["node_names"])


def _compile_names() -> Queries:
    from loadfactor.ledger.steps import Holders, compile_steps  # Ibis takes longer to import than most answers

    return compile_steps(Holders(), ("node_names",))
