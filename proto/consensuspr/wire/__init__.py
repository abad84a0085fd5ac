"""The one place where messages of the protocol and values of the scoring room meet.

The server decodes requests and encodes replies, the client does the reverse; both
directions of each message stand side by side here, so that a field cannot be written by
one and forgotten by the other.  Knows ``consensuspr.v1`` and the plain types of
``consensuspr.scoring``; knows neither gRPC nor scoring itself.
"""
