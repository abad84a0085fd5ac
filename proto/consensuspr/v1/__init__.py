"""Version 1 of the reward protocol: generated messages, stubs and the protocol's number.

``scoring.proto`` is the source; ``proto/generate.py`` makes the rest, with a generator
old enough to load on every protobuf that the supported verl, ray and vLLM pin.
"""

from __future__ import annotations

from typing import Final

# Raised when a server must be able to refuse an older client inside v1.
PROTOCOL_VERSION: Final = 2

SERVICE_NAME: Final = "consensuspr.v1.ScoringService"
ADMIN_SERVICE_NAME: Final = "consensuspr.v1.AdminService"

# In the metadata of a call: the name of the training run that asks, as in the request's own field
# ``run``, in UTF-8. A server has to know whose turn it is before it reads a request.
RUN_KEY: Final = "consensuspr-run-bin"

# In the trailing metadata of a refusal for load: when to come back, in whole milliseconds.
RETRY_AFTER_KEY: Final = "retry-after-ms"

# In that of a refusal because the dataset is not the expected one: the digest that it has.
DATASET_DIGEST_KEY: Final = "dataset-digest"
