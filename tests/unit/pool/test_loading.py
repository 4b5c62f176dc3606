"""What is asked wrongly is answered with what is wrong, before anything begins."""

from __future__ import annotations

import asyncio

import pytest

from engine.domain import NodeId
from engine.messages.pool_control import DeploymentReport, LoadModel
from engine.pool.loading import Loading
from engine.pool.model_shelf import ModelShelf
from engine.pool.pull import Pulls
from engine.pool.record_book import RecordBook
from engine.pool.store import ShardStore
from engine.pool.store_threads import StoreThreads


class Office:
    """Nobody else is in the pool; what is told is kept."""

    def __init__(self):
        self.told = []

    def tell_all(self, message):
        self.told.append(message)

    tell_coordinator = tell_all

    async def tell_facts(self):
        self.told.append(None)


@pytest.mark.parametrize("precision", ["int8", "f16"])
def test_exact_mode_over_narrow_links_is_refused_and_nobody_hears_of_it(tmp_path, precision):
    office, heard = Office(), []

    async def send(message):
        heard.append(message)

    async def ask():
        threads = StoreThreads()
        store = ShardStore(tmp_path / "store")
        shelf = ModelShelf(tmp_path / "work", store, threads, Pulls(store, threads))
        loading = Loading(NodeId("me"), tmp_path, shelf, RecordBook(), office)
        asked = LoadModel(source="anything", mode="exact", link_precision=precision)
        async with asyncio.timeout(30):
            await loading.load(asked, send)

    asyncio.run(ask())
    (report,) = [m for m in heard if isinstance(m, DeploymentReport) and m.trouble is not None]
    assert report.trouble.code == "usage"
    assert f"{precision} was asked for" in report.trouble.what
    assert not office.told
