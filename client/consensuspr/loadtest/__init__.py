"""Load a reward server, measure it and check its replies: the work behind ``loadtest``."""
