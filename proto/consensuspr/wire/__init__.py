"""Converts values of scoring to messages of the protocol and back."""
