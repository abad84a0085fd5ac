"""The sections of the page, one module each: values in, a :class:`Section` out."""
