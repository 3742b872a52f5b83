"""A test kit: simulated providers that break on demand, a real model server, a trace receiver.

All on loopback. The first needs the extra ``testing``, the second gguf and xllamacpp, the last the
extra ``langfuse``; each is imported when it is started. The charts are for notebooks.

For tests of your own code: scripted targets, a clock, assertions on records, faults of healthy
models. With pytest they are the fixtures ``scripted``, ``fallback_clock``, ``fallback_records``
and ``fault``, which need no import.
"""

from honcho_fallback.testing._asserts import (
    assert_answered,
    assert_not_switched,
    assert_outcome,
    assert_switched,
)
from honcho_fallback.testing._charts import Chart, attempts_chart, bar_chart
from honcho_fallback.testing._clock import Clock
from honcho_fallback.testing._failing import Failing
from honcho_fallback.testing._fault import FaultInjector, fault_injector
from honcho_fallback.testing._faults import FaultSimulator, SeenRequest, fault_simulator
from honcho_fallback.testing._gguf import write_tiny_gguf
from honcho_fallback.testing._local import LocalModel, local_model_server
from honcho_fallback.testing._mode import is_testing, set_testing
from honcho_fallback.testing._otlp import (
    OtlpExport,
    OtlpReceiver,
    ReceivedSpan,
    otlp_receiver,
)
from honcho_fallback.testing._records import Records, recorded
from honcho_fallback.testing._script import Script, ScriptedRequest
from honcho_fallback.testing._scripted import Scripted
from honcho_fallback.testing._status_error import StatusError
from honcho_fallback.testing._wire import FaultOptions

__all__ = [
    "Chart",
    "Clock",
    "Failing",
    "FaultInjector",
    "FaultOptions",
    "FaultSimulator",
    "LocalModel",
    "OtlpExport",
    "OtlpReceiver",
    "ReceivedSpan",
    "Records",
    "Script",
    "Scripted",
    "ScriptedRequest",
    "SeenRequest",
    "StatusError",
    "assert_answered",
    "assert_not_switched",
    "assert_outcome",
    "assert_switched",
    "attempts_chart",
    "bar_chart",
    "fault_injector",
    "fault_simulator",
    "is_testing",
    "local_model_server",
    "otlp_receiver",
    "recorded",
    "set_testing",
    "write_tiny_gguf",
]
