from fractions import Fraction

def read_statements(
    text: str | bytes,
) -> tuple[list[tuple[int, int, int, int, int, bool, bool, bool]], int, int]: ...
def expression_statements(text: str) -> list[tuple[int, Fraction]]: ...
def expression_keys(text: str) -> list[int]:
    """Return the hashes of a node expression's keys: of its true equations with an operation.

    An equation whose operands are all ones has none, for it would be reached by any other.
    """
