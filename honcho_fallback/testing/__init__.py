"""A test kit: simulated providers that break on demand, a real model server, a trace receiver.

All on loopback. The first two need the extra ``demo``, the last the extra ``langfuse``, which is
imported when one is started and not before. The charts are for notebooks and need nothing.
"""

from honcho_fallback.testing._charts import Chart, attempts_chart, bar_chart
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
    "Chart",
    "FaultSimulator",
    "LocalModel",
    "OtlpExport",
    "OtlpReceiver",
    "ReceivedSpan",
    "SeenRequest",
    "attempts_chart",
    "bar_chart",
    "fault_simulator",
    "local_model_server",
    "otlp_receiver",
    "write_tiny_gguf",
]
