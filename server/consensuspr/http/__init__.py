"""The HTTP endpoint: remote-reward requests of OpenRLHF and slime, answered by this server.

A worker listens on a second port beside gRPC and answers from the same service, through the same
admission, into the same metrics.
"""
