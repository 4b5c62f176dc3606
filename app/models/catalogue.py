"""Well-known models: what their makers published of them, and how large that makes them; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

# What a 4-bit export holds: 4 bits and a scale for each group of a layer's weights, and the
# tables, which are looked up or answer with a word, in 8.
_LAYER_BITS = 4.5
_TABLE_BITS = 8.0


class CatalogueModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model, as its card and configuration describe it.

    Attributes:
        model_id: Ours.
        is_embedded: It comes with Daisy.
        parameters: All of them; tied tables counted once.
        num_kv_heads: Of each layer.
        head_size: Of keys and of values.
        has_tied_tables: The embedding serves as LM head too; both ends of a chain need it.
        context_tokens: It was made for.
        languages: It is known to be good in, as BCP 47.
        source: Where the facts stand, and where to get it.
    """

    model_id: str = msgspec.field(name="id")
    name: str
    maker: str
    licence: str
    is_embedded: bool = False
    parameters: int
    num_layers: int
    hidden_size: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    has_tied_tables: bool
    context_tokens: int
    languages: tuple[str, ...]
    source: str

    @property
    def table_bytes(self) -> int:
        """The embedding, and the LM head, each; about."""
        return round(self.vocab_size * self.hidden_size * _TABLE_BITS / 8)

    @property
    def layer_bytes(self) -> int:
        """One layer's weights; about."""
        tables = (1 if self.has_tied_tables else 2) * self.vocab_size * self.hidden_size
        return round((self.parameters - tables) / self.num_layers * _LAYER_BITS / 8)

    @property
    def file_bytes(self) -> int:
        """The whole model on disk; about."""
        tables = (1 if self.has_tied_tables else 2) * self.table_bytes
        return self.num_layers * self.layer_bytes + tables


class _Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    note: str
    models: tuple[CatalogueModel, ...]


def read_catalogue(file: Path) -> tuple[CatalogueModel, ...]:
    """Return the models, the smallest first.

    Args:
        file: The catalogue.

    Raises:
        StorageError: It can't be read.
    """
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_Catalogue).models
    except (OSError, msgspec.MsgspecError) as exc:
        raise StorageError(f"{file} can't be read: {exc}.", "Install Daisy again.") from exc
    return tuple(sorted(found, key=lambda model: model.parameters))
