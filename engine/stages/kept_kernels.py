"""How many kernels a stage keeps for the shapes of batches that it has met.

The CPU device makes one for each matrix multiplication and number of rows, and keeps it twice: in
its own cache, of 5000 for each sort of operation, and in oneDNN's, of 1024. A stage that meets
many different batches grows by hundreds of MiB that way, over hours. A model has about six
multiplications of different sizes in a layer, and all layers share them: so many kernels are those
of about twenty numbers of rows, the last ones met. What decodes meets them again and again and is
never without; what is met once in a while costs a few milliseconds.
"""

from __future__ import annotations

NUM_KERNELS = 128
CPU_PROPERTIES = {"CPU_RUNTIME_CACHE_CAPACITY": str(NUM_KERNELS)}
# Read once, when OpenVINO is loaded. It can't be said in any other way.
ENVIRONMENT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(NUM_KERNELS)}
