"""Ensembles are as well as their parts."""

from __future__ import annotations

from models.loading.load_graph.house import House


async def test_an_ensemble_is_ready_while_its_parts_are(house: House) -> None:
    await house.load("more")
    more = house.lifecycle.catalog.find("more", 1)
    assert await more.ready()
    house.builder.instances[0].health = False
    assert not await more.ready()


async def test_an_ensemble_of_a_part_that_is_down_for_good_is_lost(house: House) -> None:
    await house.load("more")
    more = house.lifecycle.catalog.find("more", 1)
    assert more.loss == ""
    house.builder.instances[0].give_up()
    assert "it is away" in more.loss
