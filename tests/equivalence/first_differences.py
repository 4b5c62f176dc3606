"""Where answers first differ in fast mode, by what ran beside them: ``python -m`` this.

In fast mode another shape of a batch may flip a near-tie, and what follows is another answer. Each
question is asked alone; then alone once more, beside others, and with what is kept of others. What
is printed is at which token the answers part, if they do.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import openvino as ov

from engine.messages.control import Generate
from engine.models.embedded import embedded_model
from engine.models.settings import read_settings
from engine.models.template_files import load_chat_template
from engine.models.tokenizer import load_tokenizer
from engine.pipeline.chat_text import ChatText
from engine.splitter.analysis import analyse
from tests.equivalence.ring import Ring, orders_of

SYSTEM = "You answer in two short sentences, plainly, and you never guess what you do not know."
TOPICS = ("the sea", "bread", "a bridge", "rain", "a clock", "the moon", "salt", "a violin")
QUESTIONS = tuple(f"{what} {topic}?" for topic in TOPICS for what in ("What is", "Who needs"))
NUM_BESIDE = 8


def request(question: str, num_tokens: int, *, reuse: bool) -> Generate:
    """Return one question; no end of the model's own, so that all are as long."""
    messages = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": question})
    return Generate(
        request_id=question,
        messages=messages,
        max_tokens=num_tokens,
        ignore_eos=True,
        reuse_prefix=reuse,
    )


def first_difference(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    """Return the number of tokens that are the same, or None if all are."""
    pairs = enumerate(zip(one, other, strict=True))
    return next((number for number, (a, b) in pairs if a != b), None)


async def answers(ring: Ring, num_tokens: int, *, beside: int, reuse: bool) -> list[tuple]:
    """Ask all questions, so many at a time."""
    told = []
    async with ring.placed(NUM_BESIDE):
        if reuse:
            await ring.ask(request("What is sand?", 1, reuse=True))
        for group in _groups(QUESTIONS, beside):
            wanted = [request(question, num_tokens, reuse=reuse) for question in group]
            told += [asker.ids for asker in await asyncio.gather(*map(ring.ask, wanted))]
    return told


def _groups(items: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


async def compare(ring: Ring, num_tokens: int) -> None:
    """Print the distribution for each way of running."""
    await ring.load()
    try:
        alone = await answers(ring, num_tokens, beside=1, reuse=False)
        for name, beside, reuse in (
            ("alone once more", 1, False),
            (f"beside {NUM_BESIDE - 1} others", NUM_BESIDE, False),
            ("alone, with what is kept", 1, True),
            (f"beside {NUM_BESIDE - 1} others, with what is kept", NUM_BESIDE, True),
        ):
            told = await answers(ring, num_tokens, beside=beside, reuse=reuse)
            found = [first_difference(*pair) for pair in zip(alone, told, strict=True)]
            differ = sorted(number for number in found if number is not None)
            sys.stdout.write(
                f"{name}: {len(found) - len(differ)} of {len(found)} the same for "
                f"{num_tokens} tokens; the others part at token {differ}\n"
            )
    finally:
        await ring.close()


def main() -> None:
    """Load the embedded model in two stages and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--mode", choices=("fast", "exact"), default="fast")
    parser.add_argument("--kind", choices=("paged", "stateful"), default="paged")
    given = parser.parse_args()
    model = embedded_model(given.data)
    tokenizer = load_tokenizer(model)
    ends = frozenset(read_settings(model).eos_token_ids)
    text = ChatText(tokenizer, load_chat_template(model), ends, tokenizer.vocab_size)
    analysis = analyse(ov.Core(), model.xml)
    with tempfile.TemporaryDirectory() as folder:
        ring = Ring(text, orders_of(analysis, Path(folder), [12], given.kind, given.mode))
        asyncio.run(compare(ring, given.tokens))


if __name__ == "__main__":
    main()
