"""The ways to bring one copy to many hosts, each behind one small interface."""

from __future__ import annotations

from netns.contenders.base import Contender
from netns.contenders.bittorrent import BitTorrent
from netns.contenders.pool import ColdPool, WarmPool
from netns.contenders.web import Star, WholeCopies

CONTENDERS: dict[str, type[Contender]] = {
    contender.name: contender for contender in (Star, WholeCopies, BitTorrent, WarmPool, ColdPool)
}

__all__ = ["CONTENDERS", "Contender"]
