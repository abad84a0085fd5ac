def normalize(text: str | bytes) -> str:
    """Return the normal form of ``text`` as a str."""

def normal_form_with_offsets(text: str | bytes) -> tuple[bytes, list[int], list[int]]: ...
