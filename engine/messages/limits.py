"""How large anything on the wire may be, and why.

A limit stands here once; the codec enforces it on what is received and on what is sent, and the
transport hands ``MAX_FRAME_BYTES`` to the websocket, so that nothing larger is ever buffered.
"""

from __future__ import annotations

# A control message holds at most one prompt. 128k tokens of text are about 600 KB of UTF-8
# (4.6 bytes a token for English), as token ids 5 bytes each: both fit, with room for the rest.
MAX_CONTROL_BYTES = 1 << 20

# A hello has five short fields; who has not said it yet is a stranger and gets no more room.
MAX_HELLO_BYTES = 8 << 10

# One prefill chunk: 2048 rows of hidden size 8192 in f32 are 64 MiB less the header.
MAX_FRAME_BYTES = 64 << 20

# Sequences in one pass. Schedulers of the field stop at 256 running; this leaves a factor of 4.
MAX_STEPS = 1024

# Rows of one pass: the prefill chunks of the field are 512 to 8192 tokens.
MAX_TOKENS_PER_FRAME = 8192

# The widest published model has 18,432 (PaLM 540B); this leaves a factor of 3.
MAX_HIDDEN_SIZE = 65_536

# Of a row of int8: times 128, the most an int8 says, it is still a float32.
MAX_ROW_SCALE = 2.0**120

# Positions and token ids are int32 in every graph.
MAX_POSITION = 2**31 - 1
MAX_TOKEN_ID = 2**31 - 1
MAX_U32 = 2**32 - 1

# Dictionaries and lists inside a control message (a tool's JSON schema); ordinary ones reach 10.
MAX_NESTING = 32
MAX_LAYERS = 1024  # of a model; the deepest published have about 200
MAX_HEARD_COUNTER = 2**52  # of a term somebody tells: room is left to claim the next ones
MAX_COUNTER = 2**53  # of a term: a claim a microsecond for 285 years
MAX_ID_LENGTH = 64  # characters of an id, a version or a device, and entries of a list of them
MAX_NAME_LENGTH = 256  # characters of a name a person gave
MAX_REQUEST_ID_LENGTH = 128  # characters; a file's name and a chunk's number fit
MAX_SENTENCE_LENGTH = 16_384  # characters of what happened; a device's own words can be long
MAX_SOURCE_LENGTH = 32_767  # characters of a path; no system knows longer ones
MAX_STOPPING_IDS = 256  # of a model; published ones have up to 10
MAX_NODES = 64  # of a plan, and stages of a chain
MAX_KEPT_MODELS = 64  # one node tells of
MAX_PROGRESS = 256  # steps told of at once: four a node
MAX_PORT = 65_535

# A file's hash list names chunks; they travel in pieces, so that several can be under way and yet
# no more than a chunk's worth of a file is lost when a PC is. 4 MiB are 34 ms of a 1 Gbit/s link.
MAX_CHUNK_BYTES = 4 << 20
MAX_PIECE_BYTES = 1 << 20
MAX_PIECES = MAX_CHUNK_BYTES // MAX_PIECE_BYTES  # of a chunk
MAX_CHUNKS = 1 << 16  # of a file: 256 GiB
MAX_CHUNK_LIST_BYTES = MAX_CHUNKS * 32 + 1024  # a SHA-256 each, and what else a list says
# A roster of 64 members with everyone who was ever removed; an ordinary one has 3 KB.
MAX_ROSTER_BYTES = 128 << 10
MAX_HEADS = 2**16  # of a layer, and values of one; the published have hundreds
MAX_CONTEXT_TOKENS = 2**31 - 1  # positions are int32
MAX_SEQUENCES = 1024  # at once; as many as one pass may have steps
MAX_MEMORY_BYTES = 2**50  # of one PC: a petabyte
MAX_ADDRESS_LENGTH = 300  # host and port
MAX_LINK_LENGTH = 1024  # characters of an invite link, and of an address
