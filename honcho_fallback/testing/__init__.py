"""A test kit: simulated providers that break on demand, a real model server, a trace receiver.

All on loopback. The first two need the extra ``demo``, the last the extra ``langfuse``, which is
imported when one is started and not before.
"""

from honcho_fallback.testing._faults import FaultSimulator, SeenRequest, fault_simulator
from honcho_fallback.testing._gguf import write_tiny_gguf
from honcho_fallback.testing._local import LocalModel, local_model_server
from honcho_fallback.testing._otlp import (
    OtlpExport,
    OtlpReceiver,
    ReceivedSpan,
    otlp_receiver,
)

__all__ = [
    "FaultSimulator",
    "LocalModel",
    "OtlpExport",
    "OtlpReceiver",
    "ReceivedSpan",
    "SeenRequest",
    "fault_simulator",
    "local_model_server",
    "otlp_receiver",
    "write_tiny_gguf",
]
