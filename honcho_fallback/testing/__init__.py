"""A test kit: simulated providers that break on demand, and a real model server on loopback.

Both need the extra ``demo``, which is imported when one is started and not before.
"""

from honcho_fallback.testing._faults import FaultSimulator, SeenRequest, fault_simulator
from honcho_fallback.testing._gguf import write_tiny_gguf
from honcho_fallback.testing._local import LocalModel, local_model_server

__all__ = [
    "FaultSimulator",
    "LocalModel",
    "SeenRequest",
    "fault_simulator",
    "local_model_server",
    "write_tiny_gguf",
]
