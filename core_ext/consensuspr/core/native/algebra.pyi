from consensuspr.core.algebra import FactRun

def read_facts(form: bytes) -> list[FactRun]: ...
def read_expression_facts(text: str) -> tuple[bytes, list[FactRun]]:
    """Return the normal form of an expression or a problem, and what it says."""

def states_equation(text: str) -> bool:
    """Return whether a text states an equation, or anything else that could reach a node."""
