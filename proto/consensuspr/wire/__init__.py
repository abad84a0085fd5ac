"""Where messages of the protocol and values of the scoring room meet."""
