"""Models and PCs to place, in small round numbers."""

from engine.domain import ModelDescription, NodeId
from engine.pool.plan import NodeFacts
from engine.pool.stage_memory import Workload, usable_for

MIB = 1024**2
GIB = 1024**3


def model(num_layers=4, layer_bytes=100 * MIB, embedding=50 * MIB, head=60 * MIB, precision="u4"):
    """Describe a model; ``layer_bytes`` is one size for all, or one for each."""
    sizes = (layer_bytes,) * num_layers if isinstance(layer_bytes, int) else tuple(layer_bytes)
    return ModelDescription(
        name="model",
        architecture="llama",
        num_layers=len(sizes),
        hidden_size=64,
        num_kv_heads=(2,) * len(sizes),
        head_size=(64,) * len(sizes),
        value_head_size=(64,) * len(sizes),
        vocab_size=100,
        context_length=None,
        weight_precision=precision,
        layer_bytes=sizes,
        embedding_bytes=embedding,
        head_bytes=head,
        eos_token_ids=(0,),
    )


SHORT = Workload(context_tokens=32)


def node(name, usable=8 * GIB, **facts):
    """Describe a PC on which stages may take so many bytes."""
    facts = {"total_bytes": 16 * GIB, "free_bytes": usable, **facts}
    return NodeFacts(node_id=NodeId(name), name=name.upper(), **facts)


def node_holding(name, capacity, **facts):
    """Describe a PC that has room for one stage of so many bytes, headroom and process apart."""
    return node(name, usable_for(capacity), **facts)
