"""What time is: that of the clock on the wall, or that of the processor.

Processor time is what all threads of this process computed. On a machine that does other things as well, it says what
a training took; on one thread, and on a machine that does nothing else, both clocks agree.
"""

import time
from collections.abc import Callable

from seqloom.config.train import Clock

CLOCKS: dict[Clock, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.process_time}
"""Functions that give seconds; only differences mean anything."""
